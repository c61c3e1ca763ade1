{{- define "privstream.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "privstream.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "privstream.labels" -}}
{{ include "privstream.selector" . }}
app.kubernetes.io/component: worker
app.kubernetes.io/part-of: privstream
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- end -}}

{{/* Secret of values -> the key of the configuration that names its file. */}}
{{- define "privstream.secretVariables" -}}
userKey: PRIVSTREAM_USER_KEY_FILE
kafkaPassword: PRIVSTREAM_KAFKA__SASL_PASSWORD_FILE
kafkaToken: PRIVSTREAM_KAFKA__SASL_TOKEN_FILE
kafkaCa: PRIVSTREAM_KAFKA__SSL_CAFILE
kafkaCertificate: PRIVSTREAM_KAFKA__SSL_CERTFILE
kafkaKey: PRIVSTREAM_KAFKA__SSL_KEYFILE
kafkaKeyPassword: PRIVSTREAM_KAFKA__SSL_KEY_PASSWORD_FILE
registryPassword: PRIVSTREAM_KAFKA__REGISTRY__PASSWORD_FILE
registryCa: PRIVSTREAM_KAFKA__REGISTRY__SSL_CAFILE
registryCertificate: PRIVSTREAM_KAFKA__REGISTRY__SSL_CERTFILE
registryKey: PRIVSTREAM_KAFKA__REGISTRY__SSL_KEYFILE
witnessHeaders: PRIVSTREAM_JOB__WITNESS_HEADERS_FILE
{{- end -}}

{{/* Whether any Secret is named: "true", or nothing. */}}
{{- define "privstream.hasSecrets" -}}
{{- range .Values.secrets }}{{ if .name }}true{{ end }}{{ end -}}
{{- end -}}

{{/* What every container of a pod has: image, rights, environment, files. */}}
{{- define "privstream.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  capabilities:
    drop: [ALL]
  seccompProfile:
    type: RuntimeDefault
env:
  - name: PRIVSTREAM_JOB__DATA_DIR
    value: /var/lib/privstream/data
  - name: PRIVSTREAM_JOB__HTTP_HOST
    value: 0.0.0.0
  - name: PRIVSTREAM_JOB__HTTP_PORT
    value: {{ .Values.httpPort | quote }}
{{- with .Values.bootstrap }}
  - name: PRIVSTREAM_BOOTSTRAP
    value: {{ . | quote }}
{{- end }}
{{- range $secret, $variable := include "privstream.secretVariables" . | fromYaml }}
{{- if (index $.Values.secrets $secret).name }}
  - name: {{ $variable }}
    value: /run/secrets/privstream/{{ $secret }}
{{- end }}
{{- end }}
{{- range $variable, $value := .Values.env }}
  - name: {{ $variable }}
    value: {{ $value | quote }}
{{- end }}
{{- with .Values.witnessCredentials }}
# Of the bucket: its library takes them from the environment.
envFrom:
  - secretRef:
      name: {{ . }}
{{- end }}
volumeMounts:
  - name: config
    mountPath: /etc/privstream
    readOnly: true
  # Exactly the image's VOLUME: at another place a runtime would put a volume of its own over this one.
  - name: data
    mountPath: /var/lib/privstream/data
  - name: tmp
    mountPath: /tmp
{{- if include "privstream.hasSecrets" . }}
  - name: secrets
    mountPath: /run/secrets/privstream
    readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.resources }}
resources:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
