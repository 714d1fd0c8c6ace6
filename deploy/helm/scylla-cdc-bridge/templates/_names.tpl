{{/* Names, labels and image of every object. */}}

{{- define "bridge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 30 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 40 characters: Spark and StatefulSets append to it. */}}
{{- define "bridge.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains (include "bridge.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "bridge.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "bridge.selector" -}}
app.kubernetes.io/name: {{ include "bridge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* All labels of an object or a pod. The chart's labels override given ones. Takes root, component, and labels. */}}
{{- define "bridge.labels" -}}
{{- $chart := .root.Chart -}}
{{- $own := include "bridge.selector" .root | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/component" .component -}}
{{- $_ := set $own "app.kubernetes.io/version" $chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $chart.Name $chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- merge $own (default (dict) .labels) (default (dict) .root.Values.commonLabels) | toYaml -}}
{{- end -}}

{{/* Metadata of an object. Takes root, suffix, component, and own labels and annotations. */}}
{{- define "bridge.metadata" -}}
name: {{ include "bridge.fullname" .root }}{{ with .suffix }}-{{ . }}{{ end }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "bridge.labels" . | nindent 2 }}
{{- with merge (dict) (default (dict) .annotations) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "bridge.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "bridge.driverAccount" -}}
{{- with .Values.serviceAccounts.driver -}}
{{- default (ternary (include "bridge.fullname" $) "default" .create) .name -}}
{{- end -}}
{{- end -}}

{{- define "bridge.executorAccount" -}}
{{- with .Values.serviceAccounts.executors -}}
{{- default (ternary (printf "%s-executor" (include "bridge.fullname" $)) "default" .create) .name -}}
{{- end -}}
{{- end -}}

{{- define "bridge.distributed" -}}
{{- if eq .Values.mode "kubernetes" -}}yes{{- end -}}
{{- end -}}
