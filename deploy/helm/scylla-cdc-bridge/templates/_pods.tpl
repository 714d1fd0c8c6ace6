{{/* What pods have in common. */}}

{{/* Scheduling. Takes root and values (`driver` or `executors`). */}}
{{- define "bridge.scheduling" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{- define "bridge.podSecurity" -}}
{{- with .Values.security.pod }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "bridge.containerSecurity" -}}
{{- with .Values.security.container }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Volumes of every pod. Takes root and values. */}}
{{- define "bridge.volumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: {{ .root.Values.temporary.sizeLimit }}
    {{- with .root.Values.temporary.medium }}
    medium: {{ . }}
    {{- end }}
{{- range $at, $name := include "bridge.secretNames" .root | fromJsonArray }}
- name: secret-{{ $at }}
  secret:
    secretName: {{ $name }}
    defaultMode: 0440
{{- end }}
{{- range $at, $name := include "bridge.configMapNames" .root | fromJsonArray }}
- name: configmap-{{ $at }}
  configMap:
    name: {{ $name }}
{{- end }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "bridge.volumeMounts" -}}
- name: tmp
  mountPath: /tmp
{{- range $at, $name := include "bridge.secretNames" .root | fromJsonArray }}
- name: secret-{{ $at }}
  mountPath: {{ include "bridge.etc" $ }}/secrets/{{ $name }}
  readOnly: true
{{- end }}
{{- range $at, $name := include "bridge.configMapNames" .root | fromJsonArray }}
- name: configmap-{{ $at }}
  mountPath: {{ include "bridge.etc" $ }}/configmaps/{{ $name }}
  readOnly: true
{{- end }}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The configuration file: a folder, so that named objects can be mounted beside it. */}}
{{- define "bridge.configVolume" -}}
- name: config
  configMap:
    name: {{ include "bridge.fullname" . }}
{{- end -}}

{{- define "bridge.configMount" -}}
- name: config
  mountPath: {{ include "bridge.etc" . }}/config
  readOnly: true
{{- end -}}

{{- define "bridge.configPath" -}}
{{ include "bridge.etc" . }}/config/bridge.yaml
{{- end -}}
