{{/* Peers and egress rules of the network policies. */}}

{{- define "bridge.peer" -}}
podSelector:
  matchLabels:
    {{- include "bridge.selector" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Ports that the configuration names: of ScyllaDB, Kafka, the registry. A line each. */}}
{{- define "bridge.configuredPorts" -}}
{{- range list (dig "scylla" "contact_points" list .Values.config) (dig "kafka" "bootstrap_servers" list .Values.config) -}}
{{- $addresses := . -}}
{{- if kindIs "string" . }}{{ $addresses = splitList "," . }}{{ end -}}
{{- range $addresses }}
{{ regexFind "[0-9]+$" (trim .) }}
{{- end -}}
{{- end }}
{{- with urlParse (dig "registry" "url" "" .Values.config) }}
{{ regexFind "[0-9]+$" (regexFind ":[0-9]+$" .host) | default (ternary "443" "80" (eq .scheme "https")) }}
{{- end -}}
{{- end -}}

{{- define "bridge.egress" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
- ports:
    {{- range include "bridge.configuredPorts" . | splitList "\n" | compact | uniq }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- with .Values.networkPolicy.egress.extra }}
{{ toYaml . }}
{{- end }}
{{- end -}}
