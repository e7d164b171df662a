{{/* A value of values.yaml as Karrot reads it: lists with commas, and numbers with all digits (Go would write 1e+06). */}}
{{- define "karrot.settingText" -}}
{{- if kindIs "slice" . }}{{ join "," . }}{{ else if kindIs "string" . }}{{ . }}{{ else }}{{ toJson . }}{{ end }}
{{- end }}

{{/* The environment of the ConfigMap, as YAML: the chart's own settings, overridden by config. */}}
{{- define "karrot.settings" -}}
{{- $host := regexReplaceAll "^([^\\[]*:.*)$" .Values.bindAddress "[${1}]" -}}
{{- $settings := dict "KARROT_BIND" (printf "%s:%v" $host .Values.containerPort) -}}
{{- if include "karrot.postgresqlUrl" . }}
{{- $_ := mergeOverwrite $settings (include "karrot.postgresqlEnv" . | fromYaml) -}}
{{- else }}
{{- $_ := set $settings "KARROT_DATA_DIR" "/data" -}}
{{- end }}
{{- if .Values.tls.existingSecret }}
{{- $_ := mergeOverwrite $settings (dict "KARROT_TLS_CERT" "/etc/karrot/tls/tls.crt" "KARROT_TLS_KEY" "/etc/karrot/tls/tls.key") -}}
{{- end }}
{{- if .Values.burrow.enabled }}
{{- $_ := set $settings "KARROT_BURROW_URL" (include "burrow.url" .Subcharts.burrow) -}}
{{- end }}
{{- with .Values.watch }}
{{- if .enabled }}
{{- $_ := mergeOverwrite $settings (dict "KARROT_WATCH_BOOTSTRAP" (include "karrot.settingText" .bootstrapServers) "KARROT_WATCH_CLUSTER" .cluster "KARROT_WATCH_INTERVAL" .interval) -}}
{{- $named := dict "KARROT_WATCH_GROUPS" .groups "KARROT_WATCH_EXCLUDE_GROUPS" (.excludeGroups | default .exclude) "KARROT_WATCH_TOPICS" .topics "KARROT_WATCH_EXCLUDE_TOPICS" .excludeTopics "KARROT_WATCH_OFFSETS_ELSEWHERE" .offsetsElsewhere -}}
{{- range $name, $value := $named }}{{ with $value }}{{ $_ := set $settings $name . }}{{ end }}{{ end }}
{{- if .existingSecret }}{{ $_ := set $settings "KARROT_WATCH_PROPERTIES" (printf "/etc/karrot/watch/%s" .propertiesKey) }}{{ end }}
{{- end }}
{{- end }}
{{- with .Values.kafka }}
{{- if .existingSecret }}{{ $_ := set $settings "KARROT_KAFKA_PROPERTIES" (printf "/etc/karrot/kafka/%s" .propertiesKey) }}{{ end }}
{{- end }}
{{- $config := default dict .Values.config -}}
{{- if and .Values.karrot.env (not $config.compat) (not $config.reporters) }}
{{- $_ := set $settings "KARROT_COMPAT" "2019" -}}
{{- end }}
{{- range $name, $value := $config }}
{{- $_ := set $settings (printf "KARROT_%s" (upper $name)) (include "karrot.settingText" $value) -}}
{{- end }}
{{- toYaml $settings }}
{{- end }}

{{/* env, as YAML. It includes karrot.env, the name in the chart of 2019. */}}
{{- define "karrot.env" -}}
{{- $env := dict -}}
{{- range $name, $value := mergeOverwrite (deepCopy (default dict .Values.karrot.env)) (deepCopy (default dict .Values.env)) }}
{{- $_ := set $env $name (include "karrot.settingText" $value) -}}
{{- end }}
{{- toYaml $env }}
{{- end }}

{{/* Whether a value means true. Empty if it does not. The list has the words that Karrot reads as true. */}}
{{- define "karrot.isTrue" -}}
{{- if has (toString . | lower | trim) (list "true" "yes" "on" "1") }}true{{ end }}
{{- end }}

{{/* Whether /metrics needs the API token. Empty if it does not. */}}
{{- define "karrot.metricsAuth" -}}
{{- include "karrot.isTrue" (get (default dict .Values.config) "metrics_auth") }}
{{- end }}

{{/* Whether Karrot's password for PostgreSQL is a token of AWS IAM. Empty if it is not. */}}
{{- define "karrot.rdsIam" -}}
{{- include "karrot.isTrue" (get (default dict .Values.config) "event_log_rds_iam") }}
{{- end }}

{{/* Whether Karrot calls AWS, for CloudWatch, an archive or tables in S3, or a token for PostgreSQL. Empty if it does not. */}}
{{- define "karrot.aws" -}}
{{- $settings := mergeOverwrite (include "karrot.settings" . | fromYaml) (include "karrot.env" . | fromYaml) -}}
{{- $reporters := get $settings "KARROT_REPORTERS" -}}
{{- $archive := and (contains "archive" $reporters) (regexMatch "^s3a?://" (get $settings "KARROT_ARCHIVE_DIR")) -}}
{{- $s3 := or $archive (regexMatch "^s3a?://" (get $settings "KARROT_TABLES_DIR")) -}}
{{- if or (contains "cloudwatch" $reporters) $s3 (include "karrot.rdsIam" .) (and (get $settings "KARROT_COMPAT") (not $reporters)) }}true{{ end }}
{{- end }}

{{/* The size of /tmp. Each worker copies up to 512 MiB of tables in S3 for the pages. */}}
{{- define "karrot.tmpSize" -}}
{{- $settings := mergeOverwrite (include "karrot.settings" . | fromYaml) (include "karrot.env" . | fromYaml) -}}
{{- $workers := get $settings "KARROT_WORKERS" | default "2" | int -}}
{{- if regexMatch "^s3a?://" (get $settings "KARROT_TABLES_DIR") }}{{ add 64 (mul 512 $workers) }}Mi{{ else }}64Mi{{ end }}
{{- end }}

{{/* The brokers that Karrot polls or writes to, separated by commas. Empty if there are none. */}}
{{- define "karrot.brokers" -}}
{{- $settings := mergeOverwrite (include "karrot.settings" . | fromYaml) (include "karrot.env" . | fromYaml) -}}
{{- $written := ternary (get $settings "KARROT_KAFKA_BOOTSTRAP") "" (contains "kafka" (get $settings "KARROT_REPORTERS")) -}}
{{- compact (list (get $settings "KARROT_WATCH_BOOTSTRAP") $written) | join "," -}}
{{- end }}
