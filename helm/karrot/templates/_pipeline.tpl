{{/* The pipeline's archive. Spark's scheme for S3 is s3a. Another pod cannot read a folder of the service's own volume. */}}
{{- define "karrot.pipelineArchive" -}}
{{- $dir := get (default dict .Values.config) "archive_dir" | toString -}}
{{- $shared := hasPrefix "s3://" $dir | ternary $dir "" -}}
{{- default $shared .Values.pipeline.archive | replace "s3://" "s3a://" }}
{{- end }}

{{- define "karrot.pipelineImage" -}}
{{- with .Values.pipeline.image }}
{{- if .digest }}{{ printf "%s@%s" .repository .digest }}{{ else }}{{ printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}{{ end }}
{{- end }}
{{- end }}

{{/* One job of the pipeline as a container: (dict "context" $ "job" "ingest" "args" (list)) */}}
{{- define "karrot.pipelineContainer" -}}
{{- $ := .context -}}
name: {{ .job }}
image: {{ include "karrot.pipelineImage" $ | quote }}
imagePullPolicy: {{ $.Values.image.pullPolicy }}
args:
  {{- $args := concat (list "pipeline" .job) .args (list (printf "--tables=%s" ($.Values.pipeline.tables | replace "s3://" "s3a://"))) }}
  {{- range $key, $value := $.Values.pipeline.conf }}
  {{- $args = concat $args (list (printf "--conf=%s=%s" $key (include "karrot.settingText" $value))) }}
  {{- end }}
  {{- toYaml $args | nindent 2 }}
securityContext:
  {{- toYaml $.Values.securityContext | nindent 2 }}
{{- if or (include "karrot.env" $ | fromYaml) $.Values.extraEnvFrom }}
envFrom:
  {{- if include "karrot.env" $ | fromYaml }}
  - secretRef:
      name: "{{ include "karrot.fullname" $ }}-env"
  {{- end }}
  {{- with $.Values.extraEnvFrom }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- with $.Values.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.pipeline.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
  {{- with $.Values.pipeline.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
