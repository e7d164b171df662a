{{/* The chart's name in the names of objects. */}}
{{- define "karrot.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The name of the objects: the release's name. The chart's name is added if the release's name does not contain it. */}}
{{- define "karrot.fullname" -}}
{{- $name := include "karrot.name" . -}}
{{- $default := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- default $default .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "karrot.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{/* The labels of selectors. They must never change in a release, because a Deployment's selector is immutable. */}}
{{- define "karrot.selectorLabels" -}}
app.kubernetes.io/name: {{ include "karrot.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* The name, labels and annotations of an object: (dict "context" $ "name" "-suffix" "namespace" "" "labels" (dict) "annotations" (dict)) */}}
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

{{/* The name of helm test's pod. The Service must not select this pod, and the name must fit into a label. */}}
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

{{/* Karrot's URL inside the cluster. */}}
{{- define "karrot.url" -}}
{{- printf "%s://%s.%s:%v" (include "karrot.scheme" .) (include "karrot.fullname" .) (include "karrot.namespace" .) .Values.service.port }}
{{- end }}

{{/* The rules of a NetworkPolicy for traffic to AWS. */}}
{{- define "karrot.awsEgress" -}}
- ports: # AWS: CloudWatch, S3 and STS
    - port: 443
- to: # the credential endpoints of the node, of the task and of EKS Pod Identity
    - ipBlock: {cidr: 169.254.169.254/32}
    - ipBlock: {cidr: 169.254.170.0/24}
    - ipBlock: {cidr: "fd00:ec2::/32"}
  ports:
    - port: 80
{{- end }}

{{/* The rule of a NetworkPolicy for traffic to Kafka: (dict "context" $ "brokers" "HOST:PORT,…") */}}
{{- define "karrot.kafkaEgress" -}}
{{- $ports := list }}
{{- range compact (splitList "," .brokers) }}
{{- with trim . }}{{ $ports = append $ports (splitList ":" . | last | int) }}{{ end }}
{{- end -}}
- ports: # Kafka
    {{- range uniq $ports }}
    - port: {{ . }}
    {{- end }}
  {{- with .context.Values.networkPolicy.kafka }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
