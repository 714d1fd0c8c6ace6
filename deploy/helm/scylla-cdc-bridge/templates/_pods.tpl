{{/* Parts that all pods share. */}}

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

{{/* Names of the security values that violate the restricted Pod Security Standard, as a JSON list. */}}
{{- define "bridge.unrestricted" -}}
{{- $pod := .Values.security.pod -}}
{{- $container := .Values.security.container -}}
{{- $either := merge (dict) $container $pod -}}
{{- $lax := list -}}
{{- if not (get $either "runAsNonRoot") }}{{ $lax = append $lax "security.pod.runAsNonRoot" }}{{ end -}}
{{- if eq "0" (get $either "runAsUser" | toString) }}{{ $lax = append $lax "security.pod.runAsUser" }}{{ end -}}
{{- if not (has (dig "seccompProfile" "type" "" $either) (list "RuntimeDefault" "Localhost")) }}{{ $lax = append $lax "security.pod.seccompProfile" }}{{ end -}}
{{- if ne "false" (get $container "allowPrivilegeEscalation" | toString) }}{{ $lax = append $lax "security.container.allowPrivilegeEscalation" }}{{ end -}}
{{- if get $container "privileged" }}{{ $lax = append $lax "security.container.privileged" }}{{ end -}}
{{- if not (has "ALL" (dig "capabilities" "drop" (list) $container)) }}{{ $lax = append $lax "security.container.capabilities.drop" }}{{ end -}}
{{- $lax | toJson -}}
{{- end -}}

{{/* The keys that a volume holds: those that `config` names, and no others of the object. Takes the keys. */}}
{{- define "bridge.items" -}}
items:
{{- range . }}
- key: {{ . | quote }}
  path: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Volumes of every pod. Takes root, values, and tmp, the name of the volume for /tmp. */}}
{{- define "bridge.volumes" -}}
- name: {{ default "tmp" .tmp }}
  emptyDir:
    sizeLimit: {{ .root.Values.temporary.sizeLimit }}
    {{- with .root.Values.temporary.medium }}
    medium: {{ . }}
    {{- end }}
{{- range $at, $object := include "bridge.secrets" .root | fromJsonArray }}
- name: secret-{{ $at }}
  secret:
    secretName: {{ $object.name }}
    defaultMode: 0440
    {{- include "bridge.items" $object.keys | nindent 4 }}
{{- end }}
{{- range $at, $object := include "bridge.configMaps" .root | fromJsonArray }}
- name: configmap-{{ $at }}
  configMap:
    name: {{ $object.name }}
    {{- include "bridge.items" $object.keys | nindent 4 }}
{{- end }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "bridge.volumeMounts" -}}
- name: {{ default "tmp" .tmp }}
  mountPath: /tmp
{{- range $at, $object := include "bridge.secrets" .root | fromJsonArray }}
- name: secret-{{ $at }}
  mountPath: {{ include "bridge.etc" $ }}/secrets/{{ $object.name }}
  readOnly: true
{{- end }}
{{- range $at, $object := include "bridge.configMaps" .root | fromJsonArray }}
- name: configmap-{{ $at }}
  mountPath: {{ include "bridge.etc" $ }}/configmaps/{{ $object.name }}
  readOnly: true
{{- end }}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The configuration file. The volume is a folder, so named objects can be mounted beside it. */}}
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

{{/* The driver's volume for the checkpoint; none if `checkpoint.path` is set. */}}
{{- define "bridge.checkpointVolume" -}}
{{- if not .Values.checkpoint.path -}}
- name: checkpoint
  {{- with .Values.checkpoint.persistence }}
  {{- if .enabled }}
  persistentVolumeClaim:
    claimName: {{ default (printf "%s-checkpoint" (include "bridge.fullname" $)) .existingClaim }}
  {{- else }}
  emptyDir:
    sizeLimit: {{ .size }}
  {{- end }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "bridge.checkpointMount" -}}
{{- if not .Values.checkpoint.path -}}
- name: checkpoint
  mountPath: {{ include "bridge.checkpointFolder" . }}
{{- end -}}
{{- end -}}

{{- define "bridge.configPath" -}}
{{ include "bridge.etc" . }}/config/bridge.yaml
{{- end -}}
