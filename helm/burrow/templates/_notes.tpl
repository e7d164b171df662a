{{/* The notes for the user. Helm shows no notes of a subchart, so the parent chart includes these. */}}
{{- define "burrow.notes" -}}
{{- $config := include "burrow.config" . | fromJson }}
{{- $below := .Chart.IsRoot | ternary "" "burrow." }}
{{- if eq .Values.image.repository "ghcr.io/linkedin/burrow/burrow" }}

If Burrow's pod is in ImagePullBackOff, a pull of {{ .Values.image.repository }} may need an account. Build the image, push it to a
registry that the cluster reaches, and set that registry:

  git clone --branch {{ .Chart.AppVersion }} https://github.com/linkedin/Burrow && docker build -t REGISTRY/burrow:{{ .Chart.AppVersion }} Burrow
  docker push REGISTRY/burrow:{{ .Chart.AppVersion }}
  helm upgrade ... --set {{ $below }}image.repository=REGISTRY/burrow
{{- end }}
{{- with .Values.burrow }}

The values below `{{ $below }}burrow.` are values of the chart of 2019. This chart translates these values. Their new names are:
{{- if .config }}
  {{ $below }}burrow.config.*        {{ $below }}config.*, with groupAllowlist instead of groupWhitelist, groupDenylist instead of groupBlacklist
{{- end }}
{{- range $old, $new := dict "secretConfig" "existingSecret" "templates" "templates" "labels" "labels" "annotations" "annotations" "podLabels" "podLabels" "podAnnotations" "podAnnotations" }}
{{- if hasKey $.Values.burrow $old }}
  {{ $below }}{{ printf "burrow.%s" $old | printf "%-22s" }} {{ $below }}{{ $new }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $profile := $config.tls }}
{{- if $profile.noverify }}

{{ $below }}config.tls.{{ $name }}.noverify is set: Burrow does not verify the brokers' certificates.
{{- end }}
{{- end }}
{{- end -}}
