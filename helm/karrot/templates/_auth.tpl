{{/* Karrot's settings for the credentials, by their names in values.yaml. */}}
{{- define "karrot.credentials" -}}
username: KARROT_BURROW_USERNAME
password: KARROT_BURROW_PASSWORD
passwordPrevious: KARROT_BURROW_PASSWORD_PREVIOUS
token: KARROT_BURROW_TOKEN
tokenPrevious: KARROT_BURROW_TOKEN_PREVIOUS
apiToken: KARROT_API_TOKEN
apiTokenPrevious: KARROT_API_TOKEN_PREVIOUS
{{- end }}

{{/* The name of the Secret with the credentials: the user's or the chart's. */}}
{{- define "karrot.authSecret" -}}
{{- default (printf "%s-auth" (include "karrot.fullname" .)) .Values.auth.existingSecret }}
{{- end }}

{{/*
The configured credentials, as YAML: their names with their keys in the Secret. The keys are not optional: a missing key
must stop the pod from starting, because otherwise the webhook would be open.
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
