{{- define "turnwise.name" -}}
{{ contains "turnwise" .Release.Name | ternary .Release.Name (printf "%s-turnwise" .Release.Name) | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "turnwise.selector" -}}
app.kubernetes.io/name: turnwise
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "turnwise.redis-selector" -}}
app.kubernetes.io/name: turnwise-redis
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "turnwise.release" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
