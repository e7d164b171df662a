{{/* The credentials as a container's environment: (dict "context" $ "keys" …). Secrets are mounted as files, so that a reload reads the secrets again. */}}
{{- define "karrot.authEnv" -}}
{{- $ := .context -}}
{{- $settings := include "karrot.credentials" $ | fromYaml -}}
{{- range $name, $key := .keys }}
{{- if eq $name "username" }}
- name: {{ get $settings $name }}
  valueFrom:
    secretKeyRef:
      name: {{ include "karrot.authSecret" $ | quote }}
      key: {{ $key | quote }}
{{- else }}
- name: {{ get $settings $name }}_FILE
  value: /etc/karrot/auth/{{ $name }}
{{- end }}
{{- end }}
{{- end }}

{{/* The volumes of Secrets, as YAML, by name. Each is mounted at /etc/karrot/<name>. */}}
{{- define "karrot.secrets" -}}
{{- with omit (include "karrot.authKeys" . | fromYaml) "username" }}
auth:
  secretName: {{ include "karrot.authSecret" $ | quote }}
  defaultMode: 0440
  items:
    {{- range $name, $key := . }}
    - key: {{ $key | quote }}
      path: {{ $name }}
    {{- end }}
{{- end }}
{{- with .Values.tls.existingSecret }}
tls:
  secretName: {{ . | quote }}
  defaultMode: 0440
{{- end }}
{{- if and .Values.watch.enabled .Values.watch.existingSecret }}
watch:
  secretName: {{ .Values.watch.existingSecret | quote }}
  defaultMode: 0440
  items:
    - key: {{ .Values.watch.propertiesKey | quote }}
      path: {{ .Values.watch.propertiesKey | quote }}
{{- end }}
{{- with .Values.kafka }}
{{- if .existingSecret }}
kafka:
  secretName: {{ .existingSecret | quote }}
  defaultMode: 0440
  items:
    - key: {{ .propertiesKey | quote }}
      path: {{ .propertiesKey | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "karrot.secretVolumes" -}}
{{- range $name, $secret := include "karrot.secrets" . | fromYaml }}
- name: {{ $name }}
  secret:
    {{- toYaml $secret | nindent 4 }}
{{- end }}
{{- end }}

{{- define "karrot.secretMounts" -}}
{{- range $name, $_ := include "karrot.secrets" . | fromYaml }}
- name: {{ $name }}
  mountPath: /etc/karrot/{{ $name }}
  readOnly: true
{{- end }}
{{- end }}

{{/* The common part of helm test's two containers. */}}
{{- define "karrot.testContainer" -}}
{{- $auth := pick (include "karrot.authKeys" . | fromYaml) "username" "password" "token" "apiToken" -}}
image: {{ include "karrot.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- if or $auth .Values.tls.existingSecret }}
env:
  {{- with include "karrot.authEnv" (dict "context" $ "keys" $auth) | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- if .Values.tls.existingSecret }}
  - name: SSL_CERT_FILE # cert-manager puts the authority into the same Secret as the certificate
    value: /etc/karrot/tls/ca.crt
  {{- end }}
{{- end }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
  {{- with include "karrot.secretMounts" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end }}
