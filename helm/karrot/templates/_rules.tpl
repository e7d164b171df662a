{{/* A rules file with its thresholds and runbook URLs: (dict "context" $ "file" "files/alerts.yaml"). Never use tpl: {{ $labels }} belongs to Prometheus. */}}
{{- define "karrot.rules" -}}
{{- $ := .context -}}
{{- $text := $.Files.Get .file -}}
{{- if not $text }}{{ fail (printf "%s is missing: in a checkout without symbolic links, copy templates/prometheus there" .file) }}{{ end -}}
{{- $external := default "" (default dict $.Values.config).external_url -}}
{{- $runbooks := ternary (printf "%s/runbooks" (trimSuffix "/" $external)) "" (not (empty $external)) -}}
{{- range $name, $address := dict "runbookUrl" (default $runbooks $.Values.prometheusRule.runbookUrl) "externalUrl" $external }}
{{- $token := printf "<<%s>>" $name -}}
{{- if not $address }}{{ $text = regexReplaceAll (printf "(?m)^.*%s.*\n" $token) $text "" }}{{ end -}}
{{- $text = replace $token (default "" $address | include "karrot.settingText" | trimSuffix "/") $text -}}
{{- end }}
{{- range $name, $value := $.Values.prometheusRule.thresholds }}
{{- $text = replace (printf "<<%s>>" $name) (include "karrot.settingText" $value) $text -}}
{{- end }}
{{- $read := fromYaml $text -}}
{{- with $read.Error }}{{ fail (printf "the rules are not valid YAML: %s; check prometheusRule.runbookUrl and config.external_url" .) }}{{ end -}}
{{- $groups := $read.groups -}}
{{- range $name := $.Values.prometheusRule.disabled }}
{{- if not (regexMatch (printf "(?m)alert: %s$" (regexQuoteMeta $name)) ($.Files.Get "files/alerts.yaml")) }}
{{- fail (printf "prometheusRule.disabled: there is no alert %q" $name) }}
{{- end }}
{{- end }}
{{- range $group := $groups }}
{{- $kept := list -}}
{{- range $rule := $group.rules }}
{{- if $rule.alert }}{{ $_ := set $rule "labels" (mergeOverwrite $rule.labels (deepCopy (default dict $.Values.prometheusRule.alertLabels))) }}{{ end -}}
{{- if not (has $rule.alert $.Values.prometheusRule.disabled) }}{{ $kept = append $kept $rule }}{{ end -}}
{{- end }}
{{- $_ := set $group "rules" $kept -}}
{{- end }}
{{- toYaml $groups }}
{{- end }}
