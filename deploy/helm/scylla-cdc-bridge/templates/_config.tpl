{{/* The configuration file: `config`, the chart's own settings, and paths in place of named objects. */}}

{{- define "bridge.etc" -}}/etc/scylla-cdc-bridge{{- end -}}
{{- define "bridge.checkpointFolder" -}}/var/lib/scylla-cdc-bridge{{- end -}}

{{/*
Name/key of Secrets (kind "existingSecret") or ConfigMaps ("existingConfigMap") in a value, a line each. Takes kind,
value.
*/}}
{{- define "bridge.named" -}}
{{- $kind := .kind -}}
{{- if kindIs "map" .value -}}
{{- if hasKey .value $kind }}
{{ get .value $kind }}/{{ .value.key }}
{{- else -}}
{{- range $_, $value := .value }}{{ include "bridge.named" (dict "kind" $kind "value" $value) }}{{ end -}}
{{- end -}}
{{- else if kindIs "slice" .value -}}
{{- range .value }}{{ include "bridge.named" (dict "kind" $kind "value" .) }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* The objects of a kind that `config` names, sorted, as JSON [{"name": ..., "keys": [...]}]. Takes kind, root. */}}
{{- define "bridge.objects" -}}
{{- $keys := dict -}}
{{- range include "bridge.named" (dict "kind" .kind "value" .root.Values.config) | splitList "\n" | compact | uniq | sortAlpha -}}
  {{- $parts := splitn "/" 2 . -}}
  {{- $_ := set $keys $parts._0 (append (get $keys $parts._0 | default list) $parts._1) -}}
{{- end -}}
{{- $objects := list -}}
{{- range keys $keys | sortAlpha -}}
  {{- $objects = append $objects (dict "name" . "keys" (get $keys .)) -}}
{{- end -}}
{{- $objects | toJson -}}
{{- end -}}

{{- define "bridge.secrets" -}}
{{- include "bridge.objects" (dict "kind" "existingSecret" "root" .) -}}
{{- end -}}

{{- define "bridge.configMaps" -}}
{{- include "bridge.objects" (dict "kind" "existingConfigMap" "root" .) -}}
{{- end -}}

{{/*
A value with paths in place of named objects, as JSON {"value": ...}. Takes key, value. A setting that expects a path
(`ca_file`, `ssl.crl.location`) gets the path. Any other setting is a secret and gets {file: PATH}.
*/}}
{{- define "bridge.resolved" -}}
{{- $value := .value -}}
{{- if kindIs "map" .value -}}
  {{- $path := "" -}}
  {{- with .value.existingSecret }}{{ $path = printf "%s/secrets/%s/%s" (include "bridge.etc" $) . $value.key }}{{ end -}}
  {{- with .value.existingConfigMap }}{{ $path = printf "%s/configmaps/%s/%s" (include "bridge.etc" $) . $value.key }}{{ end -}}
  {{- if and $path (or (hasSuffix "_file" .key) (hasSuffix ".location" .key)) -}}
    {{- $value = $path -}}
  {{- else if $path -}}
    {{- $value = dict "file" $path -}}
  {{- else -}}
    {{- $value = dict -}}
    {{- range $key, $inner := .value -}}
      {{- $_ := set $value $key (get (include "bridge.resolved" (dict "key" $key "value" $inner) | fromJson) "value") -}}
    {{- end -}}
  {{- end -}}
{{- else if kindIs "slice" .value -}}
  {{- $value = list -}}
  {{- range .value -}}
    {{- $value = append $value (get (include "bridge.resolved" (dict "key" "" "value" .) | fromJson) "value") -}}
  {{- end -}}
{{- end -}}
{{- dict "value" $value | toJson -}}
{{- end -}}

{{- define "bridge.sparkProperties" -}}
spark.driver.memory: {{ .Values.driver.memory }}
{{- if include "bridge.distributed" . }}
{{- $name := include "bridge.fullname" . }}
{{- with .Values.executors }}
spark.executor.instances: {{ .instances | int }}
spark.executor.cores: {{ .cores | int }}
spark.executor.memory: {{ .memory }}
spark.executor.memoryOverhead: {{ .memoryOverhead }}
spark.kubernetes.executor.request.cores: {{ default (.cores | int | toString) .cpuRequest | quote }}
{{- with .cpuLimit }}
spark.kubernetes.executor.limit.cores: {{ . | quote }}
{{- end }}
spark.driver.port: {{ .driverPort | int }}
spark.blockManager.port: {{ .blockManagerPort | int }}
spark.driver.blockManager.port: {{ .blockManagerPort | int }}
{{- end }}
spark.driver.bindAddress: 0.0.0.0
spark.driver.host: {{ printf "%s-0.%s-driver.%s.svc" $name $name .Release.Namespace }}
spark.kubernetes.driver.pod.name: {{ $name }}-0
spark.kubernetes.namespace: {{ .Release.Namespace }}
spark.kubernetes.container.image: {{ include "bridge.image" . }}
spark.kubernetes.container.image.pullPolicy: {{ .Values.image.pullPolicy }}
spark.kubernetes.executor.podNamePrefix: {{ $name }}
spark.kubernetes.executor.podTemplateFile: {{ include "bridge.etc" . }}/config/executor.yaml
spark.kubernetes.executor.podTemplateContainerName: executor
# Executors get their configuration by their environment and have no claims, so the driver needs rights for pods only.
spark.kubernetes.executor.disableConfigMap: true
spark.kubernetes.driver.service.deleteOnTermination: false
spark.kubernetes.driver.ownPersistentVolumeClaim: false
spark.kubernetes.driver.reusePersistentVolumeClaim: false
spark.authenticate: true
spark.network.crypto.enabled: true
# Only AES/GCM with a derived key. Spark's default for old shuffle services is AES/CTR, which a third party can alter, or
# SASL.
spark.network.crypto.authEngineVersion: 2
spark.network.crypto.cipher: AES/GCM/NoPadding
spark.network.crypto.saslFallback: false
{{- end }}
{{- end -}}

{{- define "bridge.ownConfig" -}}
spark:
  {{- if include "bridge.distributed" . }}
  master: k8s://https://kubernetes.default.svc:443
  {{- else }}
  master: local[{{ .Values.driver.cores | int }}]
  {{- end }}
  checkpoint: {{ default (include "bridge.checkpointFolder" .) .Values.checkpoint.path }}
  properties:
    {{- include "bridge.sparkProperties" . | nindent 4 }}
monitoring:
  enabled: true
  # If the job ended, the pod would restart again and again, without its metrics and its page. It stays, not ready.
  outlive_tables: true
  listen: 0.0.0.0:{{ .Values.monitoring.port | int }}
{{- end -}}

{{/* JSON, because Helm writes large integers as 6.7e+07 in YAML. */}}
{{- define "bridge.configFile" -}}
{{- $given := get (include "bridge.resolved" (dict "key" "" "value" .Values.config) | fromJson) "value" -}}
{{- mergeOverwrite (include "bridge.ownConfig" . | fromYaml) $given | toPrettyJson -}}
{{- end -}}
