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

{{- define "turnwise.account" -}}
{{ .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "turnwise.name" .) "default") }}
{{- end }}

{{- define "turnwise.resources" -}}
{{- $process := .Values.gpu | ternary 1216 704 -}}
{{- $loaded := div (mul .Values.candidates 12) 10240 -}}
{{- $largest := div (mul .Values.candidates 23) 10240 -}}
requests:
  cpu: {{ .Values.cpu | quote }}
  memory: {{ add $process $loaded }}Mi
limits:
  memory: {{ div (mul (add $process $largest) 5) 4 }}Mi
  {{- if .Values.gpu }}
  nvidia.com/gpu: 1
  {{- end }}
{{- end }}
