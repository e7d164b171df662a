{{- define "burrow.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of all objects, cut to 53 characters so that "-zookeeper-0" fits into the name of a pod. */}}
{{- define "burrow.fullname" -}}
{{- $name := include "burrow.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 51 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 51 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 51 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "burrow.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{/* The labels of selectors of Services and Deployments. Takes the root and the component. */}}
{{- define "burrow.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "burrow.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* All labels. Takes the root, the component and more labels, which override all labels except those of selectors. */}}
{{- define "burrow.labels" -}}
{{- $root := index . 0 -}}
{{- $labels := dict "app.kubernetes.io/part-of" "karrot" "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- if eq (index . 1) "burrow" -}}
{{- $_ := set $labels "app.kubernetes.io/version" ($root.Values.image.tag | default $root.Chart.AppVersion | trunc 63) -}}
{{- end -}}
{{- range list ($root.Values.commonLabels | default dict) (index . 2 | default dict) (include "burrow.selector" . | fromYaml) -}}
{{- $labels = mergeOverwrite $labels (deepCopy .) -}}
{{- end -}}
{{- toYaml $labels -}}
{{- end -}}

{{/* The metadata of an object. Takes the root, the component, a suffix of the name, more labels and more annotations. */}}
{{- define "burrow.metadata" -}}
{{- $root := index . 0 -}}
name: {{ printf "%s%s" (include "burrow.fullname" $root) (index . 2) | quote }}
namespace: {{ include "burrow.namespace" $root | quote }}
labels:
  {{- include "burrow.labels" (list $root (index . 1) (index . 3)) | nindent 2 }}
{{- with merge (dict) (index . 4 | default dict) ($root.Values.commonAnnotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The reference of an image. Takes its values and the tag to use if its tag is empty. */}}
{{- define "burrow.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default (index . 1)) -}}
{{- end -}}
{{- end -}}

{{- define "burrow.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "burrow.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* The REST API's URL inside the cluster, for KARROT_BURROW_URL. */}}
{{- define "burrow.url" -}}
{{- $config := include "burrow.config" . | fromJson -}}
{{- printf "%s://%s.%s:%v" (ternary "https" "http" (not (empty $config.httpserver.default.tls))) (include "burrow.fullname" .) (include "burrow.namespace" .) (int .Values.service.port) -}}
{{- end -}}

{{/* Whether the chart installs a ZooKeeper: "true" or nothing. Takes the root and the effective configuration. */}}
{{- define "burrow.ownZookeeper" -}}
{{- $config := index . 1 -}}
{{- if and (index . 0).Values.zookeeper.enabled $config.notifier (not $config.zookeeper.given) -}}true{{- end -}}
{{- end -}}

{{- define "burrow.port" -}}
{{- $config := include "burrow.config" . | fromJson -}}
{{- regexFind "[0-9]+$" $config.httpserver.default.address -}}
{{- end -}}
