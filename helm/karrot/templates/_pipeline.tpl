{{/* The pipeline's archive. Another pod cannot read a folder of the service's own volume. */}}
{{- define "karrot.pipelineArchive" -}}
{{- $dir := get (default dict .Values.config) "archive_dir" | toString -}}
{{- $shared := hasPrefix "s3" $dir | ternary $dir "" -}}
{{- default $shared .Values.pipeline.archive }}
{{- end }}

{{- define "karrot.pipelineImage" -}}
{{- with .Values.pipeline.image }}
{{- if .digest }}{{ printf "%s@%s" .repository .digest }}{{ else }}{{ printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}{{ end }}
{{- end }}
{{- end }}

{{/*
The labels of the selector of a pod with Spark: (dict "context" $ "name" "pipeline"). They must never change in a release, and the
service's selector must not match them.
*/}}
{{- define "karrot.sparkSelectorLabels" -}}
app.kubernetes.io/name: {{ printf "%s-%s" (include "karrot.name" .context | trunc 54 | trimSuffix "-") .name | quote }}
app.kubernetes.io/instance: {{ .context.Release.Name | quote }}
{{- end }}

{{/* The brokers in `pipeline.args`. The chart does not know other brokers of the pipeline. */}}
{{- define "karrot.pipelineBrokers" -}}
{{- $brokers := "" }}
{{- range default list .Values.pipeline.args }}
{{- if hasPrefix "--bootstrap-servers=" . }}{{ $brokers = trimPrefix "--bootstrap-servers=" . }}{{ end }}
{{- end }}
{{- $brokers }}
{{- end }}

{{/* Spark's settings as arguments, as YAML: (dict "spark.driver.memory" "2g") */}}
{{- define "karrot.sparkConf" -}}
{{- $args := list }}
{{- range $key, $value := . }}
{{- $args = append $args (printf "--conf=%s=%s" $key (include "karrot.settingText" $value)) }}
{{- end }}
{{- toYaml $args }}
{{- end }}

{{/* All arguments of the pipeline's container, as YAML: (dict "context" $ "args" (list)) */}}
{{- define "karrot.pipelineArgs" -}}
{{- $pipeline := .context.Values.pipeline -}}
{{- $own := list (printf "--archive=%s" (include "karrot.pipelineArchive" .context)) (printf "--tables=%s" $pipeline.tables) }}
{{- $own = append $own (printf "--compact-at=%s" $pipeline.compactAt) }}
{{- $own = append $own (printf "--keep=%s" $pipeline.keep) }}
{{- $conf := include "karrot.sparkConf" (default dict $pipeline.conf) | fromYamlArray }}
{{- toYaml (concat (list "pipeline" "run") .args $own $conf (default list $pipeline.args)) }}
{{- end }}

{{/*
The metadata and the spec of a pod with Spark, for `pipeline` and `evaluate`: (dict "context" $ "name" "pipeline" "args" "…" "stays" true).
It can also have "annotations", "env", "mounts" and "volumes". The image, the volumes and the size of /tmp are those of `pipeline`.
*/}}
{{- define "karrot.pipelinePod" -}}
{{- $ := .context -}}
{{- $own := get $.Values .name -}}
{{- $env := concat (default list .env) (default list $.Values.extraEnv) -}}
metadata:
  labels:
    {{- mergeOverwrite (deepCopy (default dict $.Values.commonLabels)) (include "karrot.sparkSelectorLabels" . | fromYaml) | toYaml | nindent 4 }}
  {{- $annotations := mergeOverwrite (deepCopy (default dict $.Values.commonAnnotations)) (deepCopy (default dict $own.podAnnotations)) (default dict .annotations) }}
  {{- if and .stays (include "karrot.env" $ | fromYaml) }}
  {{- $_ := set $annotations "checksum/env" (include "karrot.env" $ | sha256sum) }}
  {{- end }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if .stays }}
  terminationGracePeriodSeconds: 30 # a turn or a batch that does not end within 20 s is abandoned
  {{- else }}
  restartPolicy: Never
  {{- end }}
  serviceAccountName: {{ include "karrot.serviceAccountName" $ | quote }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext:
    {{- toYaml $.Values.podSecurityContext | nindent 4 }}
  {{- range $name := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" }}
  {{- with get $.Values $name }}
  {{ $name }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  containers:
    - name: {{ .name }}
      image: {{ include "karrot.pipelineImage" $ | quote }}
      imagePullPolicy: {{ $.Values.image.pullPolicy }}
      args:
        {{- .args | nindent 8 }}
      securityContext:
        {{- toYaml $.Values.securityContext | nindent 8 }}
      {{- if .stays }}
      ports:
        - name: metrics
          containerPort: {{ $own.metricsPort }}
      livenessProbe: # also fails if a turn or a batch takes too long
        httpGet: {path: /healthz, port: metrics}
        periodSeconds: 30
        timeoutSeconds: 10
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /healthz, port: metrics}
        periodSeconds: 10
        timeoutSeconds: 10
      {{- end }}
      {{- if or (include "karrot.env" $ | fromYaml) $.Values.extraEnvFrom }}
      envFrom:
        {{- if include "karrot.env" $ | fromYaml }}
        - secretRef:
            name: "{{ include "karrot.fullname" $ }}-env"
        {{- end }}
        {{- with $.Values.extraEnvFrom }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      {{- with $env }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $own.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: tmp
          mountPath: /tmp
        {{- with concat (default list .mounts) (default list $.Values.pipeline.extraVolumeMounts) }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir:
        sizeLimit: {{ $.Values.pipeline.tmpSize }}
    {{- with concat (default list .volumes) (default list $.Values.pipeline.extraVolumes) }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* How Prometheus's operator scrapes a pod with Spark: (dict "context" $ "name" "pipeline") */}}
{{- define "karrot.sparkMonitor" -}}
{{- $ := .context -}}
{{- $monitor := $.Values.serviceMonitor -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  {{- include "karrot.metadata" (dict "context" $ "name" (printf "-%s" .name) "namespace" $monitor.namespace "labels" $monitor.labels "annotations" $monitor.annotations) | nindent 2 }}
spec:
  namespaceSelector:
    matchNames: [{{ include "karrot.namespace" $ | quote }}]
  selector:
    matchLabels:
      {{- include "karrot.sparkSelectorLabels" . | nindent 6 }}
  podMetricsEndpoints:
    - port: metrics
      path: /metrics
      {{- range $name := list "interval" "scrapeTimeout" "relabelings" "metricRelabelings" }}
      {{- with get $monitor $name }}
      {{ $name }}:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
{{- end }}
