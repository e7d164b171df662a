{{/* The variable that is a key of burrow.toml. Takes the parts of the key. */}}
{{- define "burrow.variable" -}}
{{- $name := printf "BURROW_%s" (join "_" . | upper | replace "." "_" | replace "-" "_") -}}
{{- if not (regexMatch "^[A-Z0-9_]+$" $name) -}}
{{- fail (printf "the password of %s cannot be a variable: its name may have letters, digits, dots, hyphens and underscores" (rest . | join ".")) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* Passwords that values hold, by variable, as JSON: they go into a Secret, never into burrow.toml. */}}
{{- define "burrow.passwords" -}}
{{- $config := include "burrow.config" . | fromJson -}}
{{- $passwords := dict -}}
{{- range $kind := list "sasl" "notifier" -}}
{{- range $name, $module := index $config $kind -}}
{{- if and $module.password (not $module.passwordFrom) -}}
{{- $_ := set $passwords (include "burrow.variable" (list $kind $name "password")) $module.password -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $passwords | toJson -}}
{{- end -}}

{{/* Takes the variable, the Secret and its key. */}}
{{- define "burrow.variableFrom" }}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef:
      name: {{ index . 1 | quote }}
      key: {{ index . 2 | quote }}
{{- end -}}

{{/* The environment of Burrow's container. Burrow takes every key of burrow.toml from it, if it is there. */}}
{{- define "burrow.environment" -}}
{{- $config := include "burrow.config" . | fromJson -}}
{{- range $kind := list "sasl" "notifier" }}
{{- range $name, $module := index $config $kind }}
{{- with $module.passwordFrom }}
{{- include "burrow.variableFrom" (list (include "burrow.variable" (list $kind $name "password")) .name .key) }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.karrot.enabled }}
{{- $auth := .Values.karrot.auth }}
{{- $secret := tpl $auth.existingSecret . }}
{{- if eq $auth.type "basic" }}
{{- include "burrow.variableFrom" (list "BURROW_NOTIFIER_KARROT_USERNAME" $secret $auth.usernameKey) }}
{{- include "burrow.variableFrom" (list "BURROW_NOTIFIER_KARROT_PASSWORD" $secret $auth.passwordKey) }}
{{- else if eq $auth.type "bearer" }}
{{- include "burrow.variableFrom" (list "KARROT_TOKEN" $secret $auth.tokenKey) }}
- name: BURROW_NOTIFIER_KARROT_HEADERS
  value: {{ set $config.notifier.karrot.headers "Authorization" "Bearer $(KARROT_TOKEN)" | toRawJson | quote }}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.env }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Whole Secrets and ConfigMaps as variables. */}}
{{- define "burrow.environmentFrom" -}}
{{- range list .Values.existingSecret ((.Values.burrow).secretConfig | default "") }}
{{- if . }}
- secretRef:
    name: {{ . | quote }}
{{- end }}
{{- end }}
{{- if include "burrow.passwords" . | fromJson }}
- secretRef:
    name: {{ include "burrow.fullname" . }}
{{- end }}
{{- with .Values.extraEnvFrom }}
{{ toYaml . }}
{{- end }}
{{- end -}}
