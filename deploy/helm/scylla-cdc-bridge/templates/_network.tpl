{{/* Peers and egress rules of the network policies. */}}

{{- define "bridge.peer" -}}
podSelector:
  matchLabels:
    {{- include "bridge.selector" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Ports of all addresses in a value, one per line: those under `url`, `…_url` and the keys below. Takes a mapping. */}}
{{- define "bridge.configuredPorts" -}}
{{- range $key, $value := . -}}
{{- if kindIs "map" $value }}
{{ include "bridge.configuredPorts" $value }}
{{- else if and (kindIs "string" $value) (or (eq $key "url") (hasSuffix "_url" $key)) }}
{{- with urlParse $value }}
{{ regexFind "[0-9]+$" (regexFind ":[0-9]+$" .host) | default (ternary "443" "80" (eq .scheme "https")) }}
{{- end }}
{{- else if has $key (list "contact_points" "bootstrap_servers") }}
{{- range kindIs "string" $value | ternary (splitList "," (toString $value)) $value }}
{{ regexFind "[0-9]+$" (trim .) }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
Ports of the checkpoint's store, one per line: the port in its path or the usual ports of its kind, and the ports of
endpoints in Spark's properties.
*/}}
{{- define "bridge.checkpointPorts" -}}
{{- with .Values.checkpoint.path }}
{{- $ports := dict "hdfs" (list 8020 9866) "webhdfs" (list 9870 9864) "swebhdfs" (list 9871 9865) "file" (list) "" (list) }}
{{- $url := urlParse . }}
{{- with regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) }}
{{ . }}
{{- end }}
{{- range hasKey $ports $url.scheme | ternary (get $ports $url.scheme) (list 443) }}
{{ . }}
{{- end }}
{{- end }}
{{- if .Values.checkpoint.path }}
{{- range $name, $value := dig "spark" "properties" (dict) .Values.config }}
{{- if and (hasSuffix "endpoint" $name) (kindIs "string" $value) }}
{{ include "bridge.configuredPorts" (dict "url" (contains "://" $value | ternary $value (printf "https://%s" $value))) }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "bridge.egress" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
- ports:
    {{- range include "bridge.configuredPorts" .Values.config | splitList "\n" | compact | uniq | sortAlpha }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- with .Values.networkPolicy.egress.extra }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "bridge.apiServerEgress" -}}
- ports:
    {{- range .Values.networkPolicy.egress.apiServerPorts }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- end -}}
