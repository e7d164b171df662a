{{/*
Translates the values of the chart of 2019 into JSON to merge over `config`. In that chart, `config` was `burrow.config`.
Renamed keys are translated. A key without a meaning fails, and the message says what to write instead.
*/}}
{{- define "burrow.legacy" -}}
{{- $burrow := .Values.burrow | default dict -}}
{{- include "burrow.legacy.known" (list "burrow" $burrow (list "config" "templates" "templateDir" "secretConfig" "labels" "annotations" "podLabels" "podAnnotations")) -}}
{{- if ne ($burrow.templateDir | default "/etc/burrow/templates") "/etc/burrow/templates" -}}
{{- fail "burrow.templateDir: templates are mounted at /etc/burrow/templates; leave it out" -}}
{{- end -}}
{{- $config := deepCopy ($burrow.config | default dict) -}}
{{- $keys := .Files.Get "files/keys.yaml" | fromYaml -}}
{{- include "burrow.legacy.known" (list "burrow.config" $config (keys $keys)) -}}
{{- $_ := unset ($config.general | default dict) "pidfile" -}}
{{- include "burrow.legacy.rename" (list ($config.zookeeper | default dict) (dict "timout" "timeout")) -}}{{/* codespell:ignore timout */}}
{{- range $name, $sasl := $config.sasl -}}
{{- include "burrow.legacy.rename" (list $sasl (dict "algorithm" "mechanism" "handshake_first" "handshakeFirst")) -}}
{{- end -}}
{{- range $kind := list "cluster" "consumer" -}}
{{- $named := dict -}}
{{- range $name, $module := index $config $kind -}}
{{- $module = $module | default dict -}}
{{- include "burrow.legacy.module" (list (printf "burrow.config.%s.%s" $kind $name) $module) -}}
{{- $_ := set $named ($module.clusterName | default $name) (unset $module "clusterName") -}}
{{- end -}}
{{- if $named -}}{{- $_ := set $config $kind $named -}}{{- end -}}
{{- end -}}
{{- range $name, $notifier := $config.notifier -}}
{{- include "burrow.legacy.notifier" (list $ $name $notifier) -}}
{{- end -}}
{{- range $kind, $modules := $config -}}
{{- include "burrow.legacy.kind" (list $kind $modules (get $keys $kind)) -}}
{{- end -}}
{{- $config | toJson -}}
{{- end -}}

{{/* Refuses unknown names. Takes the place, the mapping and the known names. */}}
{{- define "burrow.legacy.known" -}}
{{- range $key, $value := index . 1 -}}
{{- if not (has $key (index $ 2)) -}}
{{- fail (printf "%s.%s is not a key of Burrow or of the chart of 2019; known keys: %s" (index $ 0) $key (join ", " (index $ 2 | sortAlpha))) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "burrow.legacy.kind" -}}
{{- $kind := index . 0 -}}
{{- $known := keys (index . 2) -}}
{{- if has $kind (list "sasl" "notifier") -}}{{- $known = concat $known (list "password" "passwordFrom") -}}{{- end -}}
{{- if eq $kind "tls" -}}{{- $known = append $known "existingSecret" -}}{{- end -}}
{{- if has $kind (list "general" "logging" "zookeeper" "storage" "evaluator") -}}
{{- include "burrow.legacy.known" (list (printf "burrow.config.%s" $kind) (index . 1) $known) -}}
{{- else -}}
{{- range $name, $module := index . 1 -}}
{{- include "burrow.legacy.known" (list (printf "burrow.config.%s.%s" $kind $name) ($module | default dict) $known) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Renames keys. Takes a mapping and the new names by old name. */}}
{{- define "burrow.legacy.rename" -}}
{{- $values := index . 0 -}}
{{- range $old, $new := index . 1 -}}
{{- if hasKey $values $old -}}
{{- include "burrow.default" (list $values $new (get $values $old)) -}}
{{- $_ := unset $values $old -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Checks the className. Takes the place and a cluster, a consumer or a notifier. */}}
{{- define "burrow.legacy.module" -}}
{{- $module := index . 1 -}}
{{- include "burrow.legacy.rename" (list $module (dict "class_name" "className" "groupWhitelist" "groupAllowlist" "groupBlacklist" "groupDenylist")) -}}
{{- if eq ($module.className | default "") "kafka_zk" -}}
{{- fail (printf "%s.className is kafka_zk: Kafka no longer keeps offsets in ZooKeeper; write className: kafka, and Kafka's addresses as servers" (index . 0)) -}}
{{- end -}}
{{- end -}}

{{/* Translates a notifier. Takes the root, its name and the notifier. */}}
{{- define "burrow.legacy.notifier" -}}
{{- $root := index . 0 -}}
{{- $notifier := index . 2 -}}
{{- $place := printf "burrow.config.notifier.%s" (index . 1) -}}
{{- include "burrow.legacy.module" (list $place $notifier) -}}
{{- if kindIs "string" $notifier.extras -}}
{{- fail (printf "%s.extras is a text: write a mapping, such as extras: {key1: value1}" $place) -}}
{{- end -}}
{{- include "burrow.default" (list $notifier "threshold" 1) -}}
{{- include "burrow.default" (list $notifier "sendClose" true) -}}
{{- range $key := list "templateOpen" "templateClose" -}}
{{- if and (eq (get $notifier $key | toString) "events.tmpl") (not (hasKey (include "burrow.templates" $root | fromJson) "events.tmpl")) -}}
{{- $_ := set $notifier $key "karrot.tmpl" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The templates of notifiers by file name, as JSON: from the chart, from the values of 2019, and from `templates`. */}}
{{- define "burrow.templates" -}}
{{- $templates := dict "karrot.tmpl" (.Files.Get "files/karrot.tmpl") -}}
{{- include "burrow.overlay" (list $templates ((.Values.burrow).templates | default dict)) -}}
{{- include "burrow.overlay" (list $templates .Values.templates) -}}
{{- $templates | toJson -}}
{{- end -}}

{{/* A mapping of the values, merged over the mapping of 2019 with the same key, as YAML. Nothing if both are empty. Takes the root and the key. */}}
{{- define "burrow.both" -}}
{{- $root := index . 0 -}}
{{- with merge (dict) (get $root.Values (index . 1) | default dict) (get ($root.Values.burrow | default dict) (index . 1) | default dict) -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}
