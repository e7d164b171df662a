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

{{/* The labels of the selector. They must never change in a release, and the service's selector must not match them. */}}
{{- define "karrot.pipelineSelectorLabels" -}}
app.kubernetes.io/name: {{ printf "%s-pipeline" (include "karrot.name" . | trunc 54 | trimSuffix "-") | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* The ports of the brokers in `pipeline.args`, separated by commas. The chart does not know other brokers of the pipeline. */}}
{{- define "karrot.pipelineBrokerPorts" -}}
{{- $ports := list }}
{{- $brokers := "" }}
{{- range $number, $arg := default list .Values.pipeline.args }}
{{- if hasPrefix "--bootstrap-servers=" $arg }}{{ $brokers = trimPrefix "--bootstrap-servers=" $arg }}{{ end }}
{{- end }}
{{- range compact (splitList "," $brokers) }}{{ $ports = append $ports (trim . | splitList ":" | last) }}{{ end }}
{{- uniq $ports | join "," }}
{{- end }}

{{/* The metadata and the spec of the pipeline's pod: (dict "context" $ "args" (list) "stays" true) */}}
{{- define "karrot.pipelinePod" -}}
{{- $ := .context -}}
metadata:
  labels:
    {{- mergeOverwrite (deepCopy (default dict $.Values.commonLabels)) (include "karrot.pipelineSelectorLabels" $ | fromYaml) | toYaml | nindent 4 }}
  {{- $annotations := mergeOverwrite (deepCopy (default dict $.Values.commonAnnotations)) (deepCopy (default dict $.Values.pipeline.podAnnotations)) }}
  {{- if and .stays (include "karrot.env" $ | fromYaml) }}
  {{- $_ := set $annotations "checksum/env" (include "karrot.env" $ | sha256sum) }}
  {{- end }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if .stays }}
  terminationGracePeriodSeconds: 30 # a turn that does not end within 20 s is abandoned
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
    - name: pipeline
      image: {{ include "karrot.pipelineImage" $ | quote }}
      imagePullPolicy: {{ $.Values.image.pullPolicy }}
      args:
        {{- $own := list (printf "--archive=%s" (include "karrot.pipelineArchive" $)) (printf "--tables=%s" $.Values.pipeline.tables) }}
        {{- $own = append $own (printf "--compact-at=%s" $.Values.pipeline.compactAt) }}
        {{- $own = append $own (printf "--keep=%s" $.Values.pipeline.keep) }}
        {{- $args := concat (list "pipeline" "run") .args $own }}
        {{- range $key, $value := $.Values.pipeline.conf }}
        {{- $args = append $args (printf "--conf=%s=%s" $key (include "karrot.settingText" $value)) }}
        {{- end }}
        {{- toYaml (concat $args (default list $.Values.pipeline.args)) | nindent 8 }}
      securityContext:
        {{- toYaml $.Values.securityContext | nindent 8 }}
      {{- if .stays }}
      ports:
        - name: metrics
          containerPort: {{ $.Values.pipeline.metricsPort }}
      livenessProbe: # it also fails if a turn takes too long
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
      {{- with $.Values.extraEnv }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $.Values.pipeline.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: tmp
          mountPath: /tmp
        {{- with $.Values.pipeline.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir:
        sizeLimit: {{ $.Values.pipeline.tmpSize }}
    {{- with $.Values.pipeline.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
