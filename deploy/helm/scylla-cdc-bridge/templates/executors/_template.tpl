{{/* Spark uses a volume of this name for its files. Without it, Spark adds one without a size limit. */}}
{{- define "bridge.sparkVolume" -}}spark-local-dir-1{{- end -}}

{{/* The template of executor pods. Spark adds name, image, arguments, environment, memory and CPU. */}}
{{- define "bridge.executorTemplate" -}}
{{- $values := .Values.executors -}}
apiVersion: v1
kind: Pod
metadata:
  labels:
    {{- include "bridge.labels" (dict "root" . "component" "executor" "labels" $values.podLabels) | nindent 4 }}
  {{- with merge (dict) $values.podAnnotations .Values.commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "bridge.executorAccount" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  {{- include "bridge.podSecurity" . | trim | nindent 2 }}
  {{- include "bridge.scheduling" (dict "root" . "values" $values) | trim | nindent 2 }}
  containers:
    - name: executor
      {{- include "bridge.containerSecurity" . | trim | nindent 6 }}
      {{- with $values.extraEnv }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        {{- include "bridge.volumeMounts" (dict "root" . "values" $values "tmp" (include "bridge.sparkVolume" .)) | nindent 8 }}
  volumes:
    {{- include "bridge.volumes" (dict "root" . "values" $values "tmp" (include "bridge.sparkVolume" .)) | nindent 4 }}
{{- end -}}
