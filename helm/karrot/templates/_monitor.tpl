{{/* How Prometheus scrapes Karrot: the endpoint of a ServiceMonitor or a PodMonitor. */}}
{{- define "karrot.endpoint" -}}
port: http
path: /metrics
scheme: {{ include "karrot.scheme" . }}
{{- with .Values.serviceMonitor }}
honorLabels: {{ .honorLabels }}
{{- range $name := list "interval" "scrapeTimeout" "relabelings" "metricRelabelings" "tlsConfig" }}
{{- with get $.Values.serviceMonitor $name }}
{{ $name }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
{{- if include "karrot.metricsAuth" . }}
authorization:
  credentials:
    name: {{ include "karrot.authSecret" . | quote }}
    key: {{ get (include "karrot.authKeys" . | fromYaml) "apiToken" | quote }}
{{- end }}
{{- end }}

{{/* The common part of a ServiceMonitor and a PodMonitor: (dict "context" $ "kind" … "endpoints" …) */}}
{{- define "karrot.monitor" -}}
{{- $ := .context -}}
{{- $monitor := $.Values.serviceMonitor -}}
apiVersion: monitoring.coreos.com/v1
kind: {{ .kind }}
metadata:
  {{- include "karrot.metadata" (dict "context" $ "namespace" $monitor.namespace "labels" $monitor.labels "annotations" $monitor.annotations) | nindent 2 }}
spec:
  namespaceSelector:
    matchNames: [{{ include "karrot.namespace" $ | quote }}]
  selector:
    matchLabels:
      {{- include "karrot.selectorLabels" $ | nindent 6 }}
  {{ .endpoints }}:
    - {{- include "karrot.endpoint" $ | nindent 6 }}
{{- end }}
