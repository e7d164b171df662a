{{/* Each credential: its name in values.yaml, and Karrot's setting. */}}
{{- define "karrot.credentials" -}}
username: KARROT_BURROW_USERNAME
password: KARROT_BURROW_PASSWORD
passwordPrevious: KARROT_BURROW_PASSWORD_PREVIOUS
token: KARROT_BURROW_TOKEN
tokenPrevious: KARROT_BURROW_TOKEN_PREVIOUS
apiToken: KARROT_API_TOKEN
{{- end }}

{{/* The Secret with the credentials: yours, or the chart's own. */}}
{{- define "karrot.authSecret" -}}
{{- default (printf "%s-auth" (include "karrot.fullname" .)) .Values.auth.existingSecret }}
{{- end }}

{{/*
The credentials that are there, as YAML: their names with the keys of the Secret. A key that is named and missing keeps
the pod from starting, where an optional one would leave the webhook open.
*/}}
{{- define "karrot.authKeys" -}}
{{- $keys := dict -}}
{{- range $name, $_ := include "karrot.credentials" . | fromYaml }}
{{- if $.Values.auth.existingSecret }}
{{- with get $.Values.auth.keys $name }}{{ $_ := set $keys $name . }}{{ end }}
{{- else if get $.Values.auth $name }}
{{- $_ := set $keys $name $name -}}
{{- end }}
{{- end }}
{{- toYaml $keys }}
{{- end }}
