{{/* A dashboard. If Karrot's external URL is known, the dashboard links to a page of Karrot: (dict "context" $ "path" "files/dashboards/karrot-group.json" "board" "group"). Never use tpl: {{consumer}} belongs to Grafana. */}}
{{- define "karrot.dashboard" -}}
{{- $text := .context.Files.Get .path -}}
{{- $address := default "" (default dict .context.Values.config).external_url -}}
{{- if $address -}}
{{- $page := get (dict "overview" "/" "itself" "/reporters" "group" "/group?cluster=${cluster:percentencode}&consumer=${consumer:percentencode}") .board -}}
{{- $link := dict "title" "Karrot's page" "type" "link" "icon" "external link" "tooltip" "" "tags" list "asDropdown" false "includeVars" false "keepTime" false "targetBlank" true "url" (print (include "karrot.settingText" $address | trimSuffix "/") $page) -}}
{{- $read := fromJson $text -}}
{{- set $read "links" (append $read.links $link) | toPrettyJson -}}
{{- else -}}
{{- $text -}}
{{- end -}}
{{- end }}
