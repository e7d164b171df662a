{{/* The environment variable for a key of burrow.toml. Takes the parts of the key. */}}
{{- define "burrow.variable" -}}
{{- $name := printf "BURROW_%s" (join "_" . | upper | replace "." "_" | replace "-" "_") -}}
{{- if not (regexMatch "^[A-Z0-9_]+$" $name) -}}
{{- fail (printf "%s cannot be a variable: its name may have letters, digits, dots, hyphens and underscores" (rest . | join ".")) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* The passwords in the values, by variable, as JSON. They go into a Secret, never into burrow.toml. */}}
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

{{/* A variable from a Secret. Takes the variable, the Secret, its key, and whether the key may be missing. */}}
{{- define "burrow.variableFrom" }}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef:
      name: {{ index . 1 | quote }}
      key: {{ index . 2 | quote }}
      {{- if index . 3 }}
      optional: true
      {{- end }}
{{- end -}}

{{/*
The credentials for Karrot's webhook. The variable for the headers replaces the whole mapping of headers, so it repeats
all other headers. Kubernetes replaces $(KARROT_TOKEN) with the token.
*/}}
{{- define "burrow.credentials" -}}
{{- $auth := .Values.karrot.auth -}}
{{- $secret := tpl ($auth.existingSecret | default "") . -}}
{{- $optional := and (eq $auth.type "auto") (not $secret) -}}
{{- if not .Chart.IsRoot -}}
{{- $secret = $secret | default (printf "%s-auth" (include "burrow.karrotName" .)) -}}
{{- end -}}
{{- if and $secret (has $auth.type (list "auto" "basic")) -}}
{{- include "burrow.variableFrom" (list "BURROW_NOTIFIER_KARROT_USERNAME" $secret $auth.usernameKey $optional) }}
{{- include "burrow.variableFrom" (list "BURROW_NOTIFIER_KARROT_PASSWORD" $secret $auth.passwordKey $optional) }}
{{- else if eq $auth.type "bearer" -}}
{{- $headers := (include "burrow.config" . | fromJson).notifier.karrot.headers -}}
{{- include "burrow.variableFrom" (list "KARROT_TOKEN" $secret $auth.tokenKey false) }}
- name: BURROW_NOTIFIER_KARROT_HEADERS
  value: {{ set $headers "Authorization" "Bearer $(KARROT_TOKEN)" | toRawJson | quote }}
{{- end -}}
{{- end -}}

{{/* The environment of Burrow's container. Burrow can take every key of burrow.toml from its environment. */}}
{{- define "burrow.environment" -}}
{{- $config := include "burrow.config" . | fromJson -}}
{{- range $kind := list "sasl" "notifier" }}
{{- range $name, $module := index $config $kind }}
{{- with $module.passwordFrom }}
{{- include "burrow.variableFrom" (list (include "burrow.variable" (list $kind $name "password")) .name .key false) }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.karrot.enabled }}
{{- include "burrow.credentials" . }}
{{- end }}
{{- range $name, $value := .Values.env }}
- name: {{ $name | quote }}
  value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Secrets and ConfigMaps whose keys all become variables. */}}
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
