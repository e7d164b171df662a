{{/*
The effective configuration, as JSON with the names of config.*. It has the defaults, the values of 2019, the notifier
of karrot.enabled, and a consumer for each cluster without a consumer. Names of clusters are in lower case, because
Burrow reads them in lower case. A consumer with a cluster's name in upper case would store nothing.
*/}}
{{- define "burrow.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- range $kind := list "general" "logging" "cluster" "consumer" "clientProfile" "tls" "sasl" "iam" "notifier" -}}
{{- include "burrow.default" (list $config $kind dict) -}}
{{- end -}}
{{- if .Values.burrow -}}
{{- include "burrow.overlay" (list $config (include "burrow.legacy" . | fromJson)) -}}
{{- end -}}
{{- $_ := set $config.general "pidfile" "/tmp/burrow.pid" -}}
{{- $_ := set $config.zookeeper "given" (not (empty $config.zookeeper.servers)) -}}
{{- include "burrow.clusters" $config -}}
{{- include "burrow.tlsFiles" $config -}}
{{- range $name, $sasl := $config.sasl -}}
{{- include "burrow.default" (list $sasl "handshakeFirst" true) -}}
{{- end -}}
{{- if .Values.karrot.enabled -}}
{{- include "burrow.wired" (list . $config) -}}
{{- end -}}
{{- range $name, $notifier := $config.notifier -}}
{{- include "burrow.notifier" (list $ $notifier) -}}
{{- end -}}
{{- if and $config.notifier (not $config.zookeeper.servers) .Values.zookeeper.enabled -}}
{{- $_ := set $config.zookeeper "servers" (list (printf "%s-zookeeper.%s:2181" (include "burrow.fullname" .) (include "burrow.namespace" .))) -}}
{{- end -}}
{{- $_ := set $config "storage" (dict "default" (set $config.storage "className" "inmemory")) -}}
{{- $_ := set $config "evaluator" (dict "default" (set $config.evaluator "className" "caching")) -}}
{{- $config | toJson -}}
{{- end -}}

{{/* Merges a mapping over another, in place. Unlike Sprig's functions, it also uses values that are false, 0 or "". */}}
{{- define "burrow.overlay" -}}
{{- $below := index . 0 -}}
{{- range $key, $value := index . 1 -}}
{{- if and (kindIs "map" $value) (kindIs "map" (get $below $key)) -}}
{{- include "burrow.overlay" (list (get $below $key) $value) -}}
{{- else -}}
{{- $_ := set $below $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Sets a missing key. Takes the mapping, the key and the value. */}}
{{- define "burrow.default" -}}
{{- if not (hasKey (index . 0) (index . 1)) -}}
{{- $_ := set (index . 0) (index . 1) (index . 2) -}}
{{- end -}}
{{- end -}}

{{- define "burrow.clusters" -}}
{{- $config := . -}}
{{- $clusters := dict -}}
{{- $read := dict -}}
{{- range $name, $cluster := .cluster -}}
{{- if hasKey $clusters (lower $name) -}}
{{- fail (printf "config.cluster has %q twice: Burrow reads names in lower case" (lower $name)) -}}
{{- end -}}
{{- include "burrow.default" (list $cluster "className" "kafka") -}}
{{- include "burrow.default" (list $cluster "clientProfile" "default") -}}
{{- $_ := set $clusters (lower $name) $cluster -}}
{{- end -}}
{{- range $name, $consumer := .consumer -}}
{{- $_ := set $consumer "cluster" (lower ($consumer.cluster | default $name)) -}}
{{- $_ := set $read $consumer.cluster true -}}
{{- $known := get $clusters $consumer.cluster | default dict -}}
{{- include "burrow.default" (list $consumer "className" "kafka") -}}
{{- include "burrow.default" (list $consumer "servers" ($known.servers | default list)) -}}
{{- include "burrow.default" (list $consumer "clientProfile" ($known.clientProfile | default "default")) -}}
{{- include "burrow.default" (list $consumer "groupAllowlist" ".*") -}}
{{- end -}}
{{- range $name, $cluster := $clusters -}}
{{- if not (hasKey $read $name) -}}
{{- $_ := set $config.consumer $name (dict "className" "kafka" "cluster" $name "servers" $cluster.servers "clientProfile" $cluster.clientProfile "groupAllowlist" ".*") -}}
{{- end -}}
{{- end -}}
{{- $_ := set $config "cluster" $clusters -}}
{{- end -}}

{{/* The path of a TLS file. A relative name is a key of the mounted Secret. */}}
{{- define "burrow.tlsFiles" -}}
{{- range $name, $tls := .tls -}}
{{- range $key := list "caFile" "certFile" "keyFile" -}}
{{- $file := get $tls $key -}}
{{- if and $file (not (hasPrefix "/" $file)) -}}
{{- if not $tls.existingSecret -}}
{{- fail (printf "config.tls.%s.%s is %q: a path begins with /, and a key of a Secret needs config.tls.%s.existingSecret" $name $key $file $name) -}}
{{- end -}}
{{- $_ := set $tls $key (printf "/etc/burrow/tls/%s/%s" (include "burrow.slug" $name) $file) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A name in the form that a volume's name allows. */}}
{{- define "burrow.slug" -}}
{{- if regexMatch "^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$" . -}}{{ . }}{{- else -}}{{ sha256sum . | trunc 10 }}{{- end -}}
{{- end -}}

{{/* [notifier.karrot], as `karrot burrow-config` prints it. Takes the root and the configuration. */}}
{{- define "burrow.wired" -}}
{{- $root := index . 0 -}}
{{- $config := index . 1 -}}
{{- $url := include "burrow.karrotUrl" $root -}}
{{- $notifier := dict "className" "http" "urlOpen" $url "urlClose" $url "methodOpen" "POST" "methodClose" "POST" -}}
{{- $_ := set $notifier "templateOpen" "karrot.tmpl" -}}
{{- $_ := set $notifier "templateClose" "karrot.tmpl" -}}
{{- $_ := set $notifier "sendClose" true -}}
{{- $_ := set $notifier "threshold" 1 -}}
{{- $_ := set $notifier "interval" 30 -}}
{{- $_ := set $notifier "timeout" 5 -}}
{{- $_ := set $notifier "groupAllowlist" ".*" -}}
{{- $_ := set $notifier "groupDenylist" "^.*(console-consumer-|python-kafka-consumer-).*$" -}}
{{- $_ := set $notifier "headers" (dict "Idempotency-Key" "1") -}}
{{- include "burrow.overlay" (list $notifier ($config.notifier.karrot | default dict)) -}}
{{- $_ := set $config.notifier "karrot" $notifier -}}
{{- end -}}

{{/* The name of Karrot's objects in the same release, made as in Karrot's chart. */}}
{{- define "burrow.karrotName" -}}
{{- contains "karrot" .Release.Name | ternary .Release.Name (printf "%s-karrot" .Release.Name) | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The URL that Burrow posts to. */}}
{{- define "burrow.karrotUrl" -}}
{{- $url := tpl (.Values.karrot.url | default "") . | trimSuffix "/" -}}
{{- if and (not $url) .Chart.IsRoot (not (((.Values.config.notifier).karrot).urlOpen)) -}}
{{- fail "karrot.enabled needs karrot.url: the URL of Karrot's Service, such as http://karrot" -}}
{{- end -}}
{{- $url = $url | default (printf "http://%s.%s" (include "burrow.karrotName" .) (include "burrow.namespace" .)) -}}
{{- if hasSuffix "/burrow" $url -}}{{ $url }}{{- else -}}{{ $url }}/burrow{{- end -}}
{{- end -}}

{{/*
The defaults of a notifier. Burrow sends an event only if more than sendInterval has passed since the previous event.
With Burrow's default, sendInterval equals the interval, and Burrow would skip every second event. Takes the root and
the notifier.
*/}}
{{- define "burrow.notifier" -}}
{{- $root := index . 0 -}}
{{- $notifier := index . 1 -}}
{{- include "burrow.default" (list $notifier "className" "http") -}}
{{- include "burrow.default" (list $notifier "interval" 60) -}}
{{- include "burrow.default" (list $notifier "sendInterval" (div (mul 2 (int $notifier.interval)) 3)) -}}
{{- range $key := list "templateOpen" "templateClose" -}}
{{- $file := get $notifier $key -}}
{{- if and $file (not (hasPrefix "/" $file)) -}}
{{- $_ := set $notifier $key (printf "/etc/burrow/templates/%s" $file) -}}
{{- end -}}
{{- end -}}
{{- end -}}
