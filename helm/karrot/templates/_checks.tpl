{{/* What the schema cannot see, and what must hold where it is skipped: each is refused with its reason. */}}
{{- define "karrot.checks" -}}
{{- if gt (int .Values.replicaCount) 1 }}
{{- fail "replicaCount: at most 1, until the event log can live in PostgreSQL: it is SQLite on one volume, two pods would each have half of the events" }}
{{- end }}
{{- if and .Values.watch.enabled (or (empty .Values.watch.bootstrapServers) (empty .Values.watch.cluster)) }}
{{- fail "watch.enabled needs watch.bootstrapServers (Kafka's address) and watch.cluster (what the cluster is called)" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled }}
{{- fail "serviceMonitor.enabled and podMonitor.enabled: Karrot would be scraped twice; turn one of them off" }}
{{- end }}
{{- if and .Values.auth.existingSecret (or .Values.auth.username .Values.auth.password .Values.auth.token .Values.auth.apiToken) }}
{{- fail "auth.existingSecret is used alone: put username, password, token and apiToken into that Secret and name their keys in auth.keys" }}
{{- end }}
{{- if ne (empty .Values.auth.username) (empty .Values.auth.password) }}
{{- fail "auth.username and auth.password belong together: set both, or auth.token" }}
{{- end }}
{{- $keys := include "karrot.authKeys" . | fromYaml }}
{{- if and (eq (toString .Values.config.metrics_auth) "true") (not (hasKey $keys "apiToken")) }}
{{- fail "config.metrics_auth needs auth.apiToken, or auth.keys.apiToken with auth.existingSecret" }}
{{- end }}
{{- if and .Values.httpRoute.enabled (empty .Values.httpRoute.parentRefs) }}
{{- fail "httpRoute.enabled needs httpRoute.parentRefs: the gateways, such as [{name: public}]" }}
{{- end }}
{{- if and .Values.ingress.enabled (empty .Values.ingress.hosts) }}
{{- fail "ingress.enabled needs ingress.hosts, such as [{host: karrot.example.com}]" }}
{{- end }}
{{- if and .Values.pipeline.enabled (or (empty (include "karrot.pipelineArchive" .)) (empty .Values.pipeline.tables)) }}
{{- fail "pipeline.enabled needs pipeline.tables and an archive that another pod can read, such as pipeline.archive: s3a://lag/archive" }}
{{- end }}
{{- if and .Values.burrow.enabled (not (hasKey .Subcharts "burrow")) }}
{{- fail "burrow.enabled: this copy of the chart lacks charts/burrow; in a checkout without symbolic links, copy helm/burrow there" }}
{{- end }}
{{- if .Values.burrow.enabled }}
{{- $secret := include "karrot.authSecret" . }}
{{- $expected := printf "%s-auth" (include "burrow.karrotName" .Subcharts.burrow) }}
{{- include "burrow.checks.parent" (list .Subcharts.burrow (include "karrot.url" .) $keys (eq $secret $expected | ternary "" $secret)) }}
{{- end }}
{{- range $name := list "KARROT_BIND" "KARROT_DATA_DIR" }}
{{- if has $name (keys (include "karrot.env" $ | fromYaml)) }}
{{- fail (printf "env.%s: the chart sets it; use bindAddress and containerPort, or persistence" $name) }}
{{- end }}
{{- end }}
{{- end }}
