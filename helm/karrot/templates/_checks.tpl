{{/* Checks that the schema cannot do, and checks that must run even if the schema is skipped. A failed check gives its reason. */}}
{{- define "karrot.checks" -}}
{{- if and .Values.watch.enabled (or (empty .Values.watch.bootstrapServers) (empty .Values.watch.cluster)) }}
{{- fail "watch.enabled needs watch.bootstrapServers (Kafka's address) and watch.cluster (the cluster's name)" }}
{{- end }}
{{- range $name := list "watch" "evaluate" }}
{{- range include "karrot.settingText" (default "" (get $.Values $name).bootstrapServers) | splitList "," }}
{{- if and (trim .) (not (regexMatch "^[^/]+:[0-9]{1,5}$" (trim .))) }}
{{- fail (printf "%s.bootstrapServers has %q: write HOST:PORT, several separated by commas" $name .) }}
{{- end }}
{{- end }}
{{- end }}
{{- include "karrot.checks.evaluate" . }}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled }}
{{- fail "serviceMonitor.enabled and podMonitor.enabled: Karrot would be scraped twice; turn one of them off" }}
{{- end }}
{{- with .Values.serviceMonitor }}
{{- if and .interval (gt (include "karrot.milliseconds" .scrapeTimeout | int64) (include "karrot.milliseconds" .interval | int64)) }}
{{- fail (printf "serviceMonitor.scrapeTimeout is %s, longer than serviceMonitor.interval %s: the Prometheus operator would ignore the monitor; write a timeout up to the interval" .scrapeTimeout .interval) }}
{{- end }}
{{- end }}
{{- if and .Values.auth.existingSecret (or .Values.auth.username .Values.auth.password .Values.auth.token .Values.auth.apiToken) }}
{{- fail "auth.existingSecret excludes the other credentials: put username, password, token and apiToken into that Secret and name their keys in auth.keys" }}
{{- end }}
{{- if ne (empty .Values.auth.username) (empty .Values.auth.password) }}
{{- fail "auth.username and auth.password belong together: set both, or auth.token" }}
{{- end }}
{{- $keys := include "karrot.authKeys" . | fromYaml }}
{{- $metricsAuth := include "karrot.metricsAuth" . }}
{{- if and $metricsAuth (not (hasKey $keys "apiToken")) }}
{{- fail "config.metrics_auth needs auth.apiToken, or auth.keys.apiToken with auth.existingSecret" }}
{{- end }}
{{- $elsewhere := and .Values.serviceMonitor.namespace (ne .Values.serviceMonitor.namespace (include "karrot.namespace" .)) }}
{{- if and $metricsAuth $elsewhere (not .Values.auth.existingSecret) (or .Values.serviceMonitor.enabled .Values.podMonitor.enabled) }}
{{- fail "serviceMonitor.namespace: Prometheus needs the Secret with the API token for config.metrics_auth in that namespace; put a Secret with one name into both namespaces, and set auth.existingSecret to this name" }}
{{- end }}
{{- if and .Values.httpRoute.enabled (empty .Values.httpRoute.parentRefs) }}
{{- fail "httpRoute.enabled needs httpRoute.parentRefs: the gateways, such as [{name: public}]" }}
{{- end }}
{{- if and .Values.ingress.enabled (empty .Values.ingress.hosts) }}
{{- fail "ingress.enabled needs ingress.hosts, such as [{host: karrot.example.com}]" }}
{{- end }}
{{- if and .Values.pipeline.enabled (or (empty (include "karrot.pipelineArchive" .)) (empty .Values.pipeline.tables)) }}
{{- fail "pipeline.enabled needs pipeline.tables and an archive that another pod can read, such as pipeline.archive: s3://lag/archive" }}
{{- end }}
{{- if and .Values.burrow.enabled (not (hasKey .Subcharts "burrow")) }}
{{- fail "burrow.enabled: this copy of the chart lacks charts/burrow; in a checkout without symbolic links, copy helm/burrow there" }}
{{- end }}
{{- if .Values.burrow.enabled }}
{{- $secret := include "karrot.authSecret" . }}
{{- $expected := printf "%s-auth" (include "burrow.karrotName" .Subcharts.burrow) }}
{{- include "burrow.checks.parent" (list .Subcharts.burrow (include "karrot.url" .) $keys (eq $secret $expected | ternary "" $secret)) }}
{{- end }}
{{- if and .Values.burrow.enabled .Values.burrow.networkPolicy.enabled (ne (include "karrot.name" .) "karrot") }}
{{- fail "nameOverride: burrow.networkPolicy allows traffic from Burrow only to pods with the name karrot; use fullnameOverride" }}
{{- end }}
{{- include "karrot.checks.postgresql" . }}
{{- $env := include "karrot.env" . | fromYaml }}
{{- range $name, $values := include "karrot.ownEnv" . | fromYaml }}
{{- if hasKey $env $name }}
{{- fail (printf "env.%s: the chart sets it; use %s" $name $values) }}
{{- end }}
{{- end }}
{{- end }}

{{/* A duration of Prometheus, such as 1m30s, in milliseconds. */}}
{{- define "karrot.milliseconds" -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+(ms|s|m|h)" (default "" .) -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $sum = add $sum (mul (trimSuffix $unit . | int64) (get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000) $unit)) -}}
{{- end -}}
{{- $sum -}}
{{- end }}

{{- define "karrot.checks.evaluate" -}}
{{- if .Values.evaluate.enabled }}
{{- with .Values.evaluate }}
{{- if or (empty .bootstrapServers) (empty .cluster) }}
{{- fail "evaluate.enabled needs evaluate.bootstrapServers (Kafka's address) and evaluate.cluster (the cluster's name)" }}
{{- end }}
{{- if not $.Values.pipeline.tables }}
{{- fail "evaluate.enabled needs pipeline.tables, such as s3://lag/tables: the command writes the commits and its checkpoint there" }}
{{- end }}
{{- if and $.Values.watch.enabled (empty .to) (eq $.Values.watch.cluster .cluster) }}
{{- fail (printf "watch.cluster and evaluate.cluster are both %q: Karrot would report each incident twice; turn off watch or evaluate" .cluster) }}
{{- end }}
{{- if and $.Values.pipeline.enabled (contains (printf " --offsets=%s " .cluster) (printf " %s " (default list $.Values.pipeline.args | join " " | replace "--offsets " "--offsets="))) }}
{{- fail (printf "pipeline.args has --offsets for %q, and evaluate.cluster is the same: two commands would write its commits, and one would wait for the other; remove --offsets" .cluster) }}
{{- end }}
{{- end }}
{{- $keys := include "karrot.authKeys" . | fromYaml }}
{{- if and (empty .Values.evaluate.to) (hasKey $keys "password") (not (hasKey $keys "token")) }}
{{- fail "evaluate.enabled: the command sends a token to /burrow, not a password; set auth.token, or auth.keys.token with auth.existingSecret" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Variables that other objects need (probes, volumes, ServiceMonitor, helm test, Burrow), each with the chart's value to set instead. */}}
{{- define "karrot.ownEnv" -}}
KARROT_BIND: bindAddress and containerPort
KARROT_DATA_DIR: persistence
KARROT_TLS_CERT: tls.existingSecret
KARROT_TLS_KEY: tls.existingSecret
KARROT_METRICS_AUTH: config.metrics_auth
KARROT_EVENT_LOG: config.event_log
{{- range $name, $variable := include "karrot.credentials" . | fromYaml }}
{{ $variable }}: auth
{{- end }}
{{- end }}
