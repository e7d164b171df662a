{{/*
One value as TOML. Helm reads every number as a float, so whole numbers are written as integers.
*/}}
{{- define "burrow.toml.value" -}}
{{- if kindIs "map" . -}}
{ {{- range $index, $key := keys . | sortAlpha }}{{ if $index }},{{ end }} {{ include "burrow.toml.key" $key }} = {{ include "burrow.toml.value" (get $ $key) }}{{ end }} }
{{- else if kindIs "slice" . -}}
[{{ range $index, $each := . }}{{ if $index }}, {{ end }}{{ include "burrow.toml.value" $each }}{{ end }}]
{{- else if kindIs "string" . -}}
{{- include "burrow.toml.text" . -}}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{/* A text as TOML. It is the text as JSON, with escapes for DEL (for TOML) and for characters that YAML does not allow. */}}
{{- define "burrow.toml.text" -}}
{{- $text := toRawJson . -}}
{{- if regexMatch "[\\x{7f}-\\x{9f}\\x{feff}\\x{fffe}\\x{ffff}]" $text -}}
{{- range concat (untilStep 127 160 1) (list 65279 65534 65535) -}}
{{- $text = replace (printf "%c" .) (printf "\\u%04x" .) $text -}}
{{- end -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{/* A key, without quotes if TOML allows it. */}}
{{- define "burrow.toml.key" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . -}}{{ . }}{{- else -}}{{ include "burrow.toml.value" . }}{{- end -}}
{{- end -}}

{{/* A section. Takes its name as written, its values, and the names of its possible keys. */}}
{{- define "burrow.toml.section" }}
[{{ index . 0 }}]
{{- $values := index . 1 }}
{{- $names := index . 2 }}
{{- range $key := keys $values | sortAlpha }}
{{- $value := get $values $key }}
{{- if and (hasKey $names $key) (not (kindIs "invalid" $value)) (ne (toString $value) "") }}
{{- if and (kindIs "map" $value) (not $value) }}{{ continue }}{{ end }}
{{ get $names $key }} = {{ include "burrow.toml.value" $value }}
{{- end }}
{{- end }}
{{ end -}}

{{/* The sections of several modules, [kind.NAME]. Takes the kind as written, the modules, and the names of their keys. */}}
{{- define "burrow.toml.modules" -}}
{{- $kind := index . 0 -}}
{{- $names := index . 2 -}}
{{- range $name, $values := index . 1 -}}
{{- include "burrow.toml.section" (list (printf "%s.%s" $kind (include "burrow.toml.key" $name)) $values $names) -}}
{{- end -}}
{{- end -}}

{{/* The complete burrow.toml. */}}
{{- define "burrow.toml" -}}
{{- $config := include "burrow.config" . | fromJson -}}
{{- $keys := .Files.Get "files/keys.yaml" | fromYaml -}}
{{- range $kind := list "general" "logging" "zookeeper" -}}
{{- if or (ne $kind "zookeeper") $config.notifier -}}
{{- include "burrow.toml.section" (list $kind (get $config $kind) (get $keys $kind)) -}}
{{- end -}}
{{- end -}}
{{- range $kind := list "clientProfile" "tls" "sasl" "iam" "cluster" "consumer" "httpserver" "storage" "evaluator" "notifier" -}}
{{- include "burrow.toml.modules" (list (kebabcase $kind) (get $config $kind) (get $keys $kind)) -}}
{{- end -}}
{{- end -}}
