{{/* A value of values.yaml as Karrot reads it: lists with commas; numbers in full, where Go would write 1e+06. */}}
{{- define "karrot.settingText" -}}
{{- if kindIs "slice" . }}{{ join "," . }}{{ else if kindIs "string" . }}{{ . }}{{ else }}{{ toJson . }}{{ end }}
{{- end }}

{{/* The environment of the ConfigMap, as YAML: what the chart knows, and config over it. */}}
{{- define "karrot.settings" -}}
{{- $settings := dict "KARROT_BIND" (printf "%s:%v" .Values.bindAddress .Values.containerPort) "KARROT_DATA_DIR" "/data" -}}
{{- if .Values.tls.existingSecret }}
{{- $_ := mergeOverwrite $settings (dict "KARROT_TLS_CERT" "/etc/karrot/tls/tls.crt" "KARROT_TLS_KEY" "/etc/karrot/tls/tls.key") -}}
{{- end }}
{{- if .Values.burrow.enabled }}
{{- $_ := set $settings "KARROT_BURROW_URL" (include "burrow.url" .Subcharts.burrow) -}}
{{- end }}
{{- with .Values.watch }}
{{- if .enabled }}
{{- $_ := mergeOverwrite $settings (dict "KARROT_WATCH_BOOTSTRAP" (include "karrot.settingText" .bootstrapServers) "KARROT_WATCH_CLUSTER" .cluster "KARROT_WATCH_INTERVAL" .interval) -}}
{{- with .exclude }}{{ $_ := set $settings "KARROT_WATCH_EXCLUDE" . }}{{ end }}
{{- if .existingSecret }}{{ $_ := set $settings "KARROT_WATCH_PROPERTIES" (printf "/etc/karrot/watch/%s" .propertiesKey) }}{{ end }}
{{- end }}
{{- end }}
{{- if and .Values.karrot.env (not .Values.config.compat) (not .Values.config.reporters) }}
{{- $_ := set $settings "KARROT_COMPAT" "2019" -}}
{{- end }}
{{- range $name, $value := .Values.config }}
{{- $_ := set $settings (printf "KARROT_%s" (upper $name)) (include "karrot.settingText" $value) -}}
{{- end }}
{{- toYaml $settings }}
{{- end }}

{{/* env, as YAML: what the chart of 2019 called karrot.env is part of it. */}}
{{- define "karrot.env" -}}
{{- $env := dict -}}
{{- range $name, $value := mergeOverwrite (deepCopy .Values.karrot.env) (deepCopy .Values.env) }}
{{- $_ := set $env $name (include "karrot.settingText" $value) -}}
{{- end }}
{{- toYaml $env }}
{{- end }}

{{/* Whether the cloudwatch reporter is on: empty if not. */}}
{{- define "karrot.cloudwatch" -}}
{{- $settings := mergeOverwrite (include "karrot.settings" . | fromYaml) (include "karrot.env" . | fromYaml) -}}
{{- if or (contains "cloudwatch" (get $settings "KARROT_REPORTERS")) (and (get $settings "KARROT_COMPAT") (not (get $settings "KARROT_REPORTERS"))) }}true{{ end }}
{{- end }}
