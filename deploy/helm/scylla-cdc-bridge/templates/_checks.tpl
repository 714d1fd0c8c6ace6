{{/* Problems of the values, one per line: values that are valid alone but not together, and secrets. */}}

{{- define "bridge.problems.ports" -}}
{{- if include "bridge.distributed" . }}
{{- $ports := dict }}
{{- range list (list "monitoring.port" .Values.monitoring.port) (list "executors.driverPort" .Values.executors.driverPort) (list "executors.blockManagerPort" .Values.executors.blockManagerPort) }}
{{- $port := last . | int | toString }}
{{- if hasKey $ports $port }}
{{ get $ports $port }} and {{ first . }} are both {{ $port }}: the driver's pod listens at each, so they have to differ
{{- end }}
{{- $_ := set $ports $port (first .) }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "bridge.problems.tables" -}}
{{- $tables := dict }}
{{- range $at, $table := .Values.config.tables }}
{{- $name := $table }}
{{- if kindIs "map" $table }}{{ $name = $table.name }}{{ end }}
{{- /* The name as CQL reads it. The job checks quoted names. */ -}}
{{- if not (contains "\"" $name) }}{{ $name = lower $name }}{{ end }}
{{- if hasKey $tables $name }}
config.tables[{{ $at }}] is {{ $name }}, which config.tables[{{ get $tables $name }}] is already: name each table once
{{- end }}
{{- $_ := set $tables $name $at }}
{{- end }}
{{- end -}}

{{- define "bridge.problems.accounts" -}}
{{- with .Values.serviceAccounts.driver }}
{{- if and (not .create) (not .name) }}
serviceAccounts.driver.create is false, so serviceAccounts.driver.name has to say as whom the driver runs (`default` is the account that every namespace has)
{{- end }}
{{- end }}
{{- end -}}

{{/* Not empty if a name is that of a secret. Takes forms (from files/secrets.json) and name. */}}
{{- define "bridge.namesSecret" -}}
{{- if and (regexMatch .forms.name .name) (not (regexMatch .forms.place .name)) }}yes{{ end -}}
{{- end -}}

{{/* Not empty if a text contains a secret. Takes forms and text. */}}
{{- define "bridge.holdsSecret" -}}
{{- $forms := .forms -}}
{{- if or (regexMatch $forms.login .text) (regexMatch $forms.signed .text) }}yes{{ end -}}
{{- range concat (regexFindAll $forms.assignment .text -1) (regexFindAll $forms.option .text -1) -}}
{{- include "bridge.namesSecret" (dict "forms" $forms "name" (regexFind "^[A-Za-z0-9_.-]+" .)) -}}
{{- end -}}
{{- end -}}

{{- define "bridge.problems.secrets" -}}
{{- $forms := .Files.Get "files/secrets.json" | fromJson }}
{{- $options := "put such options into a file of a Secret, mount that by extraVolumes and extraVolumeMounts, and set the variable JDK_JAVA_OPTIONS to @FILE" }}
{{- range $owner := list "driver" "executors" }}
{{- range $at, $variable := get (get $.Values $owner) "extraEnv" }}
{{- $name := get $variable "name" | toString }}
{{- $text := get $variable "value" | default "" | toString }}
{{- $place := printf "%s.extraEnv[%d] (%s)" $owner $at $name }}
{{- if and $text (include "bridge.namesSecret" (dict "forms" $forms "name" $name)) (not (regexMatch `^\$\([A-Za-z0-9_.-]+\)$` $text)) }}
{{ $place }} is a secret by its name: instead of `value` give `valueFrom: {secretKeyRef: {name: NAME, key: KEY}}`, or call it otherwise
{{- else if has $name (list "JAVA_TOOL_OPTIONS" "JDK_JAVA_OPTIONS" "_JAVA_OPTIONS" "SPARK_SUBMIT_OPTS") }}
{{- /* A reference does not help here: the JVM prints these options on standard error. */ -}}
{{- if include "bridge.holdsSecret" (dict "forms" $forms "text" (replace "$" "" $text)) }}
{{ $place }} has a secret in its value, which would come into the pod's log or its command lines: {{ $options }}
{{- end }}
{{- else if include "bridge.holdsSecret" (dict "forms" $forms "text" $text) }}
{{ $place }} has a secret in its value: take that from a variable with `valueFrom: {secretKeyRef: {name: NAME, key: KEY}}`, and write $(VARIABLE) in its place
{{- end }}
{{- end }}
{{- end }}
{{- range $section, $instead := dict "spark" (printf "give it to the pods by driver.extraEnv and executors.extraEnv, with `valueFrom`; if it is for a JVM, %s" $options) "kafka" "config.kafka.sasl and config.kafka.tls take {existingSecret: NAME, key: KEY}" }}
{{- range $name, $value := dig $section "properties" (dict) $.Values.config }}
{{- if and (kindIs "string" $value) (include "bridge.holdsSecret" (dict "forms" $forms "text" (toString $value))) }}
config.{{ $section }}.properties.{{ $name }} has a secret in its value, which would stand in a ConfigMap: {{ $instead }}
{{- end }}
{{- end }}
{{- end }}
{{- if regexMatch $forms.login .Values.checkpoint.path }}
checkpoint.path has a login in it, which would stand in a ConfigMap: give it to the pods by driver.extraEnv, with `valueFrom`, or by the identity of their account
{{- end }}
{{- end -}}

{{/* Bytes of a memory size of the JVM, such as 512m. */}}
{{- define "bridge.heapBytes" -}}
{{- mulf (float64 (regexFind "^[0-9]+" .)) (get (dict "m" 1048576 "g" 1073741824 "t" 1099511627776) (regexFind "[a-z]$" .)) -}}
{{- end -}}

{{/* Bytes that a JVM needs beside a heap, by Spark's rule, without Python's processes. */}}
{{- define "bridge.besideHeapBytes" -}}
{{- maxf (mulf (include "bridge.heapBytes" . | float64) 0.1) 402653184 -}}
{{- end -}}

{{/* Bytes of a Kubernetes quantity; empty if it is not one. */}}
{{- define "bridge.quantityBytes" -}}
{{- $text := toString . -}}
{{- $units := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- if regexMatch `^([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+|[kMGTPE]i?|Ki|m)?$` $text -}}
{{- $unit := regexFind "[A-Za-z]+$" $text -}}
{{- mulf (float64 (trimSuffix $unit $text)) (get $units $unit) -}}
{{- end -}}
{{- end -}}

{{- define "bridge.problems.memory" -}}
{{- $beside := include "bridge.besideHeapBytes" .Values.driver.memory | float64 }}
{{- $least := addf (include "bridge.heapBytes" .Values.driver.memory | float64) $beside }}
{{- $resources := default (dict) .Values.driver.resources }}
{{- if kindIs "map" $resources.limits }}
{{- with $resources.limits.memory }}
{{- $bytes := include "bridge.quantityBytes" . }}
{{- if not $bytes }}
driver.resources.limits.memory is {{ . }}, which is no quantity of Kubernetes: write it as in 3Gi
{{- else if lt (float64 $bytes) $least }}
driver.resources.limits.memory is {{ kindIs "float64" . | ternary (int64 .) . }}, but the driver's JVM takes {{ divf $least 1048576 | ceil | int }}Mi with a heap of driver.memory ({{ $.Values.driver.memory }}), and Python's processes come on top: its container would be killed for want of memory, so raise the one or lower the other
{{- end }}
{{- end }}
{{- end }}
{{- if include "bridge.distributed" . }}
{{- with .Values.executors }}
{{- $beside = include "bridge.besideHeapBytes" .memory | float64 }}
{{- if lt (include "bridge.heapBytes" .memoryOverhead | float64) $beside }}
executors.memoryOverhead is {{ .memoryOverhead }}, but an executor's JVM takes {{ divf $beside 1048576 | ceil | int }}Mi beside a heap of executors.memory ({{ .memory }}), and Python's processes come on top: its container would be killed for want of memory, so raise the one or lower the other
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
Clashes of extraVolumes and extraVolumeMounts with the chart's. Takes owner (`driver` or `executors`), values, and the
chart's volumes and mounts.
*/}}
{{- define "bridge.problems.volumesOf" -}}
{{- $owner := .owner }}
{{- $volumes := dict }}
{{- range .volumes }}{{ $_ := set $volumes .name "the chart" }}{{ end }}
{{- $mounts := dict }}
{{- $closed := list }}
{{- range .mounts }}
{{- $_ := set $mounts .mountPath (printf "the chart (volume %s)" .name) }}
{{- if .readOnly }}{{ $closed = append $closed .mountPath }}{{ end }}
{{- end }}
{{- range $at, $volume := .values.extraVolumes }}
{{- $name := get $volume "name" | toString }}
{{- with get $volumes $name }}
{{ $owner }}.extraVolumes[{{ $at }}] is called {{ $name }}, as a volume of {{ . }} is: give it another name
{{- end }}
{{- $_ := set $volumes $name (printf "%s.extraVolumes[%d]" $owner $at) }}
{{- end }}
{{- range $at, $mount := .values.extraVolumeMounts }}
{{- $place := printf "%s.extraVolumeMounts[%d]" $owner $at }}
{{- $name := get $mount "name" | toString }}
{{- if not (hasKey $volumes $name) }}
{{ $place }} is of a volume {{ $name }}, which is not among {{ $owner }}.extraVolumes
{{- end }}
{{- $path := get $mount "mountPath" | toString | clean }}
{{- with get $mounts $path }}
{{ $place }} ({{ $name }}) is mounted at {{ $path }}, where {{ . }} has something mounted: give it another mountPath
{{- end }}
{{- range $closed }}
{{- if hasPrefix (printf "%s/" .) $path }}
{{ $place }} ({{ $name }}) is mounted at {{ $path }}, in a folder that the chart mounts read-only: give it another mountPath
{{- end }}
{{- end }}
{{- $_ := set $mounts $path $place }}
{{- end }}
{{- end -}}

{{- define "bridge.problems.volumes" -}}
{{- $none := dict "root" . "values" dict }}
{{- $volumes := list (include "bridge.configVolume" .) (include "bridge.volumes" $none) (include "bridge.checkpointVolume" .) | join "\n" | fromYamlArray }}
{{- $mounts := list (include "bridge.configMount" .) (include "bridge.volumeMounts" $none) (include "bridge.checkpointMount" .) | join "\n" | fromYamlArray }}
{{- include "bridge.problems.volumesOf" (dict "owner" "driver" "values" .Values.driver "volumes" $volumes "mounts" $mounts) }}
{{- $none = set $none "tmp" (include "bridge.sparkVolume" .) }}
{{- $volumes = include "bridge.volumes" $none | fromYamlArray }}
{{- $mounts = include "bridge.volumeMounts" $none | fromYamlArray }}
{{ include "bridge.problems.volumesOf" (dict "owner" "executors" "values" .Values.executors "volumes" $volumes "mounts" $mounts) }}
{{- end -}}
