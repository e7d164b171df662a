{{/* What a user must know beside where it is; Helm shows no notes of a subchart, so the chart above shows these. */}}
{{- define "burrow.notes" -}}
{{- $config := include "burrow.config" . | fromJson }}
{{- $below := .Chart.IsRoot | ternary "" "burrow." }}
{{- if eq .Values.image.repository "ghcr.io/linkedin/burrow/burrow" }}

If Burrow's pod says ImagePullBackOff: {{ .Values.image.repository }} may ask for an account. Build the image, put it where
the cluster finds it, and name that place:

  git clone --branch {{ .Chart.AppVersion }} https://github.com/linkedin/Burrow && docker build -t REGISTRY/burrow:{{ .Chart.AppVersion }} Burrow
  docker push REGISTRY/burrow:{{ .Chart.AppVersion }}
  helm upgrade ... --set {{ $below }}image.repository=REGISTRY/burrow
{{- end }}
{{- with .Values.burrow }}

The values below `{{ $below }}burrow.` are those of the chart of 2019. They are translated; their places are now:
{{- if .config }}
  {{ $below }}burrow.config.*        {{ $below }}config.*, with groupAllowlist for groupWhitelist, groupDenylist for groupBlacklist
{{- end }}
{{- range $old, $new := dict "secretConfig" "existingSecret" "templates" "templates" "labels" "labels" "annotations" "annotations" "podLabels" "podLabels" "podAnnotations" "podAnnotations" }}
{{- if hasKey $.Values.burrow $old }}
  {{ $below }}{{ printf "burrow.%s" $old | printf "%-22s" }} {{ $below }}{{ $new }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $profile := $config.tls }}
{{- if $profile.noverify }}

{{ $below }}config.tls.{{ $name }}.noverify: nobody checks who the brokers are.
{{- end }}
{{- end }}
{{- end -}}
