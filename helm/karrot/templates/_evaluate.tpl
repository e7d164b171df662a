{{/* The address that gets the verdicts: the user's, or the chart's own service. */}}
{{- define "karrot.evaluateTo" -}}
{{- default (include "karrot.url" .) .Values.evaluate.to }}
{{- end }}

{{/* All arguments of the container, as YAML. */}}
{{- define "karrot.evaluateArgs" -}}
{{- $evaluate := .Values.evaluate -}}
{{- $judges := empty $evaluate.webhookSecret | ternary "burrow" "burrow,stale" }}
{{- $args := list "pipeline" "offsets" (printf "--judge=%s" $judges) (printf "--cluster=%s" $evaluate.cluster) }}
{{- $args = append $args (printf "--bootstrap-servers=%s" (include "karrot.settingText" $evaluate.bootstrapServers)) }}
{{- if $evaluate.existingSecret }}
{{- $args = append $args (printf "--command-config=/etc/karrot/evaluate/%s" $evaluate.propertiesKey) }}
{{- end }}
{{- $to := prepend (default list $evaluate.alsoTo) (printf "karrot=%s" (include "karrot.evaluateTo" .)) }}
{{- $args = append $args (printf "--to=%s" (concat $to (empty $evaluate.webhookSecret | ternary list (list "webhook")) | join ",")) }}
{{- $args = append $args (printf "--every=%s" $evaluate.every) }}
{{- $args = append $args (printf "--metrics-port=%v" $evaluate.metricsPort) }}
{{- $args = append $args "--wait=2m" }}{{/* in S3, the lease of a pod that was killed ends after a minute */}}
{{- $args = append $args (printf "--tables=%s" .Values.pipeline.tables) }}
{{- with $evaluate.checkpoint }}{{ $args = append $args (printf "--checkpoint=%s" .) }}{{ end }}
{{- $conf := mergeOverwrite (deepCopy (default dict .Values.pipeline.conf)) (deepCopy (default dict $evaluate.conf)) }}
{{- toYaml (concat $args (include "karrot.sparkConf" $conf | fromYamlArray) (default list $evaluate.args)) }}
{{- end }}

{{/* The token of /burrow, the webhook, and the authority that signed the certificate of the chart's own service, as environment variables. */}}
{{- define "karrot.evaluateEnv" -}}
{{- with get (include "karrot.authKeys" . | fromYaml) "token" }}
- name: KARROT_BURROW_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ include "karrot.authSecret" $ | quote }}
      key: {{ . | quote }}
{{- end }}
{{- with .Values.evaluate.webhookSecret }}
- name: KARROT_STALE_WEBHOOK
  valueFrom:
    secretKeyRef:
      name: {{ . | quote }}
      key: url
{{- end }}
{{- if include "karrot.evaluateTrusts" . }}
- name: SSL_CERT_FILE # cert-manager puts the authority into the same Secret as the certificate
  value: /etc/karrot/tls/ca.crt
{{- end }}
{{- end }}

{{/* Whether the pod needs the authority in `tls.existingSecret`. Empty if it does not. */}}
{{- define "karrot.evaluateTrusts" -}}
{{- if and .Values.tls.existingSecret (empty .Values.evaluate.to) }}true{{ end }}
{{- end }}

{{/* The volumes of Secrets, as YAML, by name. Each is mounted at /etc/karrot/<name>. The pod does not get the key of the certificate. */}}
{{- define "karrot.evaluateSecrets" -}}
{{- with .Values.evaluate }}
{{- if .existingSecret }}
evaluate:
  secretName: {{ .existingSecret | quote }}
  defaultMode: 0440
  items:
    - key: {{ .propertiesKey | quote }}
      path: {{ .propertiesKey | quote }}
{{- end }}
{{- end }}
{{- if include "karrot.evaluateTrusts" . }}
tls:
  secretName: {{ .Values.tls.existingSecret | quote }}
  defaultMode: 0440
  items:
    - {key: ca.crt, path: ca.crt}
{{- end }}
{{- end }}
