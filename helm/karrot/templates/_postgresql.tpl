{{/* The event log's URL if the event log is in PostgreSQL. Empty if it is not. */}}
{{- define "karrot.postgresqlUrl" -}}
{{- $log := get (default dict .Values.config) "event_log" | toString -}}
{{- if regexMatch "^postgres(ql)?://" $log }}{{ $log }}{{ end }}
{{- end }}

{{/* The database's ports, separated by commas. A host without a port has the first port of the parameter `port`, or 5432. */}}
{{- define "karrot.postgresqlPorts" -}}
{{- $url := include "karrot.postgresqlUrl" . -}}
{{- $ports := regexReplaceAll "^.*=" (regexFind "[?&]port=[0-9,]+" $url) "" | splitList "," | compact -}}
{{- $default := first (append $ports "5432") -}}
{{- range regexReplaceAll "^[a-z]+://([^/?]*@)?([^/?]*).*$" $url "${2}" | splitList "," }}
{{- $ports = append $ports (regexFind ":[0-9]+$" . | trimPrefix ":" | default $default) -}}
{{- end }}
{{- uniq $ports | join "," -}}
{{- end }}

{{/* The Secrets and the ConfigMap for the database, as the sources of one volume, which is mounted at /etc/karrot/postgresql. */}}
{{- define "karrot.postgresqlSources" -}}
{{- with .Values.postgresql }}
{{- if .existingSecret }}
- secret:
    name: {{ .existingSecret | quote }}
    items: [{key: {{ .passwordKey | quote }}, path: password}]
{{- end }}
{{- if .caSecret }}
- secret:
    name: {{ .caSecret | quote }}
    items: [{key: {{ .caKey | quote }}, path: ca.crt}]
{{- end }}
{{- if .caConfigMap }}
- configMap:
    name: {{ .caConfigMap | quote }}
    items: [{key: {{ .caKey | quote }}, path: ca.crt}]
{{- end }}
{{- end }}
{{- end }}

{{/* How Karrot finds these files, as YAML. PGSSLROOTCERT is a variable of PostgreSQL's client library. */}}
{{- define "karrot.postgresqlEnv" -}}
{{- with .Values.postgresql }}
{{- if .existingSecret }}
KARROT_EVENT_LOG_PASSWORD_FILE: /etc/karrot/postgresql/password
{{- end }}
{{- if or .caSecret .caConfigMap }}
PGSSLROOTCERT: /etc/karrot/postgresql/ca.crt
{{- end }}
{{- end }}
{{- end }}

{{/* Pods of one zone or node die together. matchLabelKeys counts only the pods of the newest version during an update. */}}
{{- define "karrot.spread" -}}
{{- range $topology := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ $topology }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "karrot.selectorLabels" $ | nindent 6 }}
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}

{{/* Checks of the values for several pods and for PostgreSQL. */}}
{{- define "karrot.checks.postgresql" -}}
{{- $url := include "karrot.postgresqlUrl" . }}
{{- $given := .Values.postgresql }}
{{- $config := default dict .Values.config }}
{{- if and (gt (int .Values.replicaCount) 1) (not $url) }}
{{- fail "replicaCount: more than 1 needs config.event_log: postgresql://USER@HOST/DATABASE, because SQLite is on the volume of one pod, and two pods would each have half of the events" }}
{{- end }}
{{- if and (or $given.existingSecret $given.caSecret $given.caConfigMap) (not $url) }}
{{- fail "postgresql: its values need config.event_log: postgresql://USER@HOST/DATABASE" }}
{{- end }}
{{- if regexMatch "^[a-z]+://[^/?@]*:[^/?@]*@|[?&](ssl)?password=" $url }}
{{- fail "config.event_log has a password: put the password into a Secret and set postgresql.existingSecret" }}
{{- end }}
{{- if and $given.existingSecret (or (include "karrot.rdsIam" .) $config.event_log_password_command) }}
{{- fail "postgresql.existingSecret excludes config.event_log_rds_iam and config.event_log_password_command: set one of them" }}
{{- end }}
{{- if and $given.caSecret $given.caConfigMap }}
{{- fail "postgresql.caSecret and postgresql.caConfigMap are set: set one of them" }}
{{- end }}
{{- $isVerified := regexMatch "[?&]sslmode=verify-" $url }}
{{- $hasCa := or $given.caSecret $given.caConfigMap }}
{{- if and $hasCa (not $isVerified) }}
{{- fail "postgresql.caSecret and postgresql.caConfigMap need sslmode=verify-full in config.event_log: otherwise, Karrot does not check the database's certificate" }}
{{- end }}
{{- if and $isVerified (not $hasCa) (not (regexMatch "[?&]sslrootcert=" $url)) }}
{{- fail "config.event_log has sslmode=verify-full or verify-ca: set postgresql.caSecret or postgresql.caConfigMap to the certificate of the authority" }}
{{- end }}
{{- if and $url (or .Values.persistence.enabled .Values.persistence.existingClaim) }}
{{- fail "persistence: an event log in PostgreSQL needs no volume; remove these values" }}
{{- end }}
{{- $settings := mergeOverwrite (include "karrot.settings" . | fromYaml) (include "karrot.env" . | fromYaml) }}
{{- if and $url (contains "archive" (get $settings "KARROT_REPORTERS")) (not (regexMatch "^s3a?://" (get $settings "KARROT_ARCHIVE_DIR"))) }}
{{- fail "config.archive_dir: with PostgreSQL, the archive must be s3://BUCKET/PREFIX, because the pod that writes it can be replaced by a pod on another node" }}
{{- end }}
{{- end }}
