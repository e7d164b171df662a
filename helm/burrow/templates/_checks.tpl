{{/* Checks that JSON Schema cannot do. A failed check says what to write instead. Takes the root. */}}
{{- define "burrow.checks" -}}
{{- $config := include "burrow.config" . | fromJson -}}
{{- if not $config.cluster -}}
{{- fail "config.cluster is empty: name a Kafka cluster and its addresses, such as config.cluster.mycluster.servers: [kafka:9092]" -}}
{{- end -}}
{{- include "burrow.checks.kafka" $config -}}
{{- include "burrow.checks.profiles" $config -}}
{{- range $name, $notifier := $config.notifier -}}
{{- include "burrow.checks.notifier" (list $ $name $notifier) -}}
{{- end -}}
{{- if and $config.notifier (not $config.zookeeper.servers) -}}
{{- fail "a notifier needs ZooKeeper, even if Kafka runs without it: write config.zookeeper.servers, or zookeeper.enabled: true to install one" -}}
{{- end -}}
{{- include "burrow.checks.passwords" (list . $config) -}}
{{- $release := regexFind "^v?[0-9]+[.][0-9]+[.][0-9]+" (.Values.image.tag | default "") -}}
{{- if and $release (semverCompare "<1.3.5" $release) -}}
{{- fail (printf "image.tag is %s: a Burrow before 1.3.5 knows neither allowlists nor /burrow/admin/ready; leave image.tag out for %s" .Values.image.tag .Chart.AppVersion) -}}
{{- end -}}
{{- if and .Values.karrot.enabled .Chart.IsRoot (has .Values.karrot.auth.type (list "basic" "bearer")) (not .Values.karrot.auth.existingSecret) -}}
{{- fail (printf "karrot.auth.type %s needs karrot.auth.existingSecret: the Secret with the credentials of Karrot's webhook" .Values.karrot.auth.type) -}}
{{- end -}}
{{- include "burrow.checks.reference" (list "config.zookeeper.tls" $config.zookeeper.tls "tls" $config) -}}
{{- if and $config.zookeeper.tls (not (get $config.tls $config.zookeeper.tls).caFile) -}}
{{- fail (printf "config.zookeeper.tls needs caFile in config.tls.%s, else Burrow stops" $config.zookeeper.tls) -}}
{{- end -}}
{{- range $name, $server := $config.httpserver -}}
{{- include "burrow.checks.reference" (list (printf "config.httpserver.%s.tls" $name) $server.tls "tls" $config) -}}
{{- if and $server.tls (not (get $config.tls $server.tls).certFile) -}}
{{- fail (printf "config.httpserver.%s.tls needs certFile and keyFile in config.tls.%s, else Burrow stops" $name $server.tls) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "burrow.checks.kafka" -}}
{{- $config := . -}}
{{- range $name, $cluster := .cluster -}}
{{- if regexMatch "\\s" $name -}}
{{- fail (printf "config.cluster has %q: Burrow never evaluates a cluster with a space in its name" $name) -}}
{{- end -}}
{{- if not $cluster.servers -}}
{{- fail (printf "config.cluster.%s.servers is empty: write Kafka's addresses, such as [kafka:9092]" $name) -}}
{{- end -}}
{{- include "burrow.checks.reference" (list (printf "config.cluster.%s.clientProfile" $name) $cluster.clientProfile "clientProfile" $config) -}}
{{- end -}}
{{- range $name, $consumer := .consumer -}}
{{- include "burrow.checks.reference" (list (printf "config.consumer.%s.cluster" $name) $consumer.cluster "cluster" $config) -}}
{{- include "burrow.checks.reference" (list (printf "config.consumer.%s.clientProfile" $name) $consumer.clientProfile "clientProfile" $config) -}}
{{- include "burrow.checks.regexps" (list (printf "config.consumer.%s" $name) $consumer) -}}
{{- end -}}
{{- end -}}

{{- define "burrow.checks.profiles" -}}
{{- $config := . -}}
{{- range $name, $profile := .clientProfile -}}
{{- $place := printf "config.clientProfile.%s" $name -}}
{{- range $kind := list "tls" "sasl" "iam" -}}
{{- include "burrow.checks.reference" (list (printf "%s.%s" $place $kind) (get $profile $kind) $kind $config) -}}
{{- end -}}
{{- if and $profile.iam (not $profile.tls) -}}
{{- fail (printf "%s.iam needs tls, else Burrow stops: write config.tls.amazon: {} and %s.tls: amazon" $place $place) -}}
{{- end -}}
{{- if and $profile.iam $profile.sasl -}}
{{- fail (printf "%s has both sasl and iam: IAM is a kind of SASL; leave one out" $place) -}}
{{- end -}}
{{- $tls := get $config.tls ($profile.tls | default "") | default dict -}}
{{- if and $tls.certFile (not $tls.caFile) -}}
{{- fail (printf "config.tls.%s has certFile without caFile: Burrow then sends Kafka no certificate; write caFile too" $profile.tls) -}}
{{- end -}}
{{- end -}}
{{- range $name, $tls := .tls -}}
{{- if ne (empty $tls.certFile) (empty $tls.keyFile) -}}
{{- fail (printf "config.tls.%s needs both certFile and keyFile, or neither" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* If no Secret or variable can contain a password, the password must be in the values, because Burrow stops without it. */}}
{{- define "burrow.checks.passwords" -}}
{{- $values := (index . 0).Values -}}
{{- $elsewhere := or $values.existingSecret $values.env $values.extraEnv $values.extraEnvFrom ($values.burrow).secretConfig -}}
{{- range $name, $sasl := (index . 1).sasl -}}
{{- if not (or $elsewhere $sasl.password $sasl.passwordFrom) -}}
{{- fail (printf "config.sasl.%s has no password: write passwordFrom: {name: SECRET, key: KEY}, or existingSecret with the key %s" $name (include "burrow.variable" (list "sasl" $name "password"))) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Checks for Karrot's chart, which includes Burrow's chart. A chart does not see its parent's values. So the values of
Burrow's chart must agree with the values of Karrot's chart. Takes the root of Burrow's chart, Karrot's URL, the names of
Karrot's credentials, and Karrot's Secret.
*/}}
{{- define "burrow.checks.parent" -}}
{{- $burrow := index . 0 -}}
{{- $karrot := $burrow.Values.karrot -}}
{{- $url := index . 1 | trimSuffix ":80" -}}
{{- $asked := index . 2 -}}
{{- if $karrot.enabled -}}
{{- $notifier := (include "burrow.config" $burrow | fromJson).notifier.karrot -}}
{{- if and (not $karrot.url) (eq $notifier.urlOpen (include "burrow.karrotUrl" $burrow)) (ne $notifier.urlOpen (printf "%s/burrow" $url)) -}}
{{- fail (printf "burrow.karrot.url: Karrot is at %s here; write burrow.karrot.url: %s" $url $url) -}}
{{- end -}}
{{- $open := or (eq $karrot.auth.type "none") (and (eq $karrot.auth.type "auto") (index . 3) (not $karrot.auth.existingSecret)) -}}
{{- if and $open (or (hasKey $asked "password") (hasKey $asked "token")) -}}
{{- fail (printf "Karrot needs credentials from Burrow: write burrow.karrot.auth.type: %s and burrow.karrot.auth.existingSecret: %s" (hasKey $asked "password" | ternary "basic" "bearer") (index . 3 | default "the Secret")) -}}
{{- end -}}
{{- if and (hasKey $asked "token") (not (hasKey $asked "password")) (ne $karrot.auth.type "bearer") -}}
{{- fail "Karrot needs a token from Burrow: write burrow.karrot.auth.type: bearer" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Checks that a name exists in the configuration. Takes the place, the name, the kind and the configuration. */}}
{{- define "burrow.checks.reference" -}}
{{- $name := index . 1 -}}
{{- $known := get (index . 3) (index . 2) | default dict -}}
{{- if and $name (not (hasKey $known $name)) -}}
{{- fail (printf "%s is %q, which config.%s does not have; known: %s" (index . 0) $name (index . 2) (keys $known | sortAlpha | join ", " | default "none")) -}}
{{- end -}}
{{- end -}}

{{/* Checks regular expressions. Helm and Burrow both use Go's. */}}
{{- define "burrow.checks.regexps" -}}
{{- range $key := list "groupAllowlist" "groupDenylist" -}}
{{- $_ := mustRegexMatch (get (index $ 1) $key | default "") "" -}}
{{- end -}}
{{- end -}}

{{/* Checks a notifier. Takes the root, its name and the notifier. */}}
{{- define "burrow.checks.notifier" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $notifier := index . 2 -}}
{{- $place := printf "config.notifier.%s" $name -}}
{{- include "burrow.checks.regexps" (list $place $notifier) -}}
{{- if not $notifier.templateOpen -}}
{{- fail (printf "%s.templateOpen is missing: write a file name of templates, or karrot.tmpl" $place) -}}
{{- end -}}
{{- if and (eq $notifier.className "http") (not $notifier.urlOpen) -}}
{{- fail (printf "%s.urlOpen is missing: write the URL that the notifier posts to" $place) -}}
{{- end -}}
{{- if $notifier.sendClose -}}
{{- if or (not $notifier.templateClose) (and (eq $notifier.className "http") (not $notifier.urlClose)) -}}
{{- fail (printf "%s.sendClose needs urlClose and templateClose, else Burrow stops" $place) -}}
{{- end -}}
{{- end -}}
{{- range $key := list "templateOpen" "templateClose" -}}
{{- $file := get $notifier $key | default "" -}}
{{- $short := trimPrefix "/etc/burrow/templates/" $file -}}
{{- if and (ne $short $file) (not (hasKey (include "burrow.templates" $root | fromJson) $short)) -}}
{{- fail (printf "%s.%s is %q, which templates does not have" $place $key $short) -}}
{{- end -}}
{{- end -}}
{{- range $key := list "urlOpen" "urlClose" -}}
{{- if regexMatch "^[a-z]+://[^/]*@" (get $notifier $key | default "") -}}
{{- fail (printf "%s.%s has a user or a password, which would be readable in a ConfigMap: write username, and passwordFrom" $place $key) -}}
{{- end -}}
{{- end -}}
{{- range $header, $value := $notifier.headers -}}
{{- if regexMatch "(?i)authorization|token|secret|password|api-?key|^cookie$" $header -}}
{{- fail (printf "%s.headers has %s, which would be readable in a ConfigMap: use karrot.auth, or set %s to a JSON object from a Secret" $place $header (include "burrow.variable" (list "notifier" $name "headers"))) -}}
{{- end -}}
{{- end -}}
{{- if $root.Values.karrot.enabled -}}
{{- if eq $name "karrot" -}}
{{- if $notifier.sendOnce -}}
{{- fail "config.notifier.karrot.sendOnce hides every change after the first verdict from Karrot; leave it out" -}}
{{- end -}}
{{- else if hasSuffix "/burrow" ($notifier.urlOpen | default "") -}}
{{- fail (printf "%s and config.notifier.karrot (from karrot.enabled) both post to Karrot: name the notifier karrot, or write karrot.enabled: false" $place) -}}
{{- end -}}
{{- end -}}
{{- end -}}
