{{/* The chart's name in names of objects. */}}
{{- define "karrot.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The name of the objects: the release's, with the chart's where that is not part of it. */}}
{{- define "karrot.fullname" -}}
{{- $name := include "karrot.name" . -}}
{{- $default := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- default $default .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "karrot.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{/* What never changes in the life of a release: a Deployment's selector is immutable. */}}
{{- define "karrot.selectorLabels" -}}
app.kubernetes.io/name: {{ include "karrot.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* name, labels and annotations of an object: (dict "context" $ "name" "-suffix" "namespace" "" "labels" (dict) "annotations" (dict)) */}}
{{- define "karrot.metadata" -}}
{{- $ := .context -}}
{{- $own := dict "helm.sh/chart" (printf "%s-%s" $.Chart.Name $.Chart.Version | replace "+" "_" | trunc 63) "app.kubernetes.io/version" $.Chart.AppVersion "app.kubernetes.io/managed-by" $.Release.Service "app.kubernetes.io/part-of" "karrot" -}}
name: {{ printf "%s%s" (include "karrot.fullname" $) (default "" .name) | quote }}
namespace: {{ default (include "karrot.namespace" $) .namespace | quote }}
labels:
  {{- mergeOverwrite $own (deepCopy (default dict $.Values.commonLabels)) (deepCopy (default dict .labels)) (include "karrot.selectorLabels" $ | fromYaml) | toYaml | nindent 2 }}
{{- with mergeOverwrite (deepCopy (default dict $.Values.commonAnnotations)) (deepCopy (default dict .annotations)) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* helm test's pod: not what the Service selects, and no longer than a label may be. */}}
{{- define "karrot.testName" -}}
{{- printf "%s-test" (include "karrot.name" . | trunc 58 | trimSuffix "-") }}
{{- end }}

{{- define "karrot.serviceAccountName" -}}
{{- $made := .Values.serviceAccount.create | ternary (include "karrot.fullname" .) "default" -}}
{{- default $made .Values.serviceAccount.name }}
{{- end }}

{{- define "karrot.image" -}}
{{- $version := default .Chart.AppVersion .Values.image.tag -}}
{{- with .Values.image.digest }}{{ printf "%s@%s" $.Values.image.repository . }}{{ else }}{{ printf "%s:%s" .Values.image.repository $version }}{{ end }}
{{- end }}

{{- define "karrot.scheme" -}}
{{- .Values.tls.existingSecret | empty | ternary "http" "https" }}
{{- end }}

{{/* Karrot's address inside the cluster. */}}
{{- define "karrot.url" -}}
{{- printf "%s://%s.%s:%v" (include "karrot.scheme" .) (include "karrot.fullname" .) (include "karrot.namespace" .) .Values.service.port }}
{{- end }}
