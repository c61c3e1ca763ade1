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

{{/* Name of the ConfigMap with the job; refuses what is neither, or both. */}}
{{- define "privstream.configMap" -}}
{{- if and .Values.config .Values.existingConfigMap -}}
{{- fail "existingConfigMap: the job is in config already. Fix: set one of them" -}}
{{- end -}}
{{- if not (or .Values.config .Values.existingConfigMap) -}}
{{- fail "config: there is no job. Fix: --set-file config=job.toml (examples/ has some), or existingConfigMap: a ConfigMap with the key job.toml" -}}
{{- end -}}
{{- .Values.existingConfigMap | default (include "privstream.name" .) -}}
{{- end -}}

{{/*
The job of `config` as JSON, {} where it is in a ConfigMap that exists already. Refuses what is no TOML, and what no pod would start with;
all else is for `privstream validate`, which each pod runs first.
*/}}
{{- define "privstream.job" -}}
{{- $job := .Values.config | fromToml -}}
{{- if hasKey $job "Error" -}}
{{- fail (printf "config: it is no TOML: %s. Fix: correct it, and try privstream validate job.toml" $job.Error) -}}
{{- end -}}
{{- if .Values.config -}}
{{- if not (kindIs "slice" (get $job "streams")) -}}
{{- fail "config: there is no stream in it. Fix: add [[streams]]; examples/ has some" -}}
{{- end -}}
{{- if not (or .Values.bootstrap (get .Values.env "PRIVSTREAM_BOOTSTRAP") (dig "kafka" "bootstrap" "" $job)) -}}
{{- fail "config: [kafka] has no bootstrap. Fix: write bootstrap = \"host:9092\" there, or set the value bootstrap" -}}
{{- end -}}
{{- range $job.streams -}}
{{- $privacy := dig "privacy" dict . -}}
{{- if and (eq (toString (get $privacy "unit")) "user") (not (or (get $privacy "user_key_file") $.Values.secrets.userKey.name (get $.Values.env "PRIVSTREAM_USER_KEY_FILE"))) -}}
{{- fail (printf "secrets.userKey.name: stream %v has unit = \"user\", and no key hashes its users. Fix: name a Secret, and secrets.userKey.key within it" (get . "name")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $job | toJson -}}
{{- end -}}

{{/* Ports of the brokers, as JSON {"ports": [...]}: those that are set, else those of bootstrap. */}}
{{- define "privstream.kafkaPorts" -}}
{{- $ports := .Values.networkPolicy.kafkaPorts -}}
{{- if not $ports -}}
{{- $job := include "privstream.job" . | fromJson -}}
{{- $bootstrap := .Values.bootstrap | default (get .Values.env "PRIVSTREAM_BOOTSTRAP") | default (dig "kafka" "bootstrap" "" $job) | toString -}}
{{- if not $bootstrap -}}
{{- fail (printf "networkPolicy.kafkaPorts: the ports of the brokers are in ConfigMap %s, which the chart does not read. Fix: set it, or bootstrap" .Values.existingConfigMap) -}}
{{- end -}}
{{- range splitList "," $bootstrap -}}
{{- $port := regexFind "[0-9]+$" (trim .) -}}
{{- if not (regexMatch ":[0-9]+$" (trim .)) -}}
{{- fail (printf "bootstrap: %q has no port. Fix: write host:port, several separated by commas" .) -}}
{{- end -}}
{{- $ports = append $ports (int $port) -}}
{{- end -}}
{{- end -}}
{{- dict "ports" ($ports | uniq) | toJson -}}
{{- end -}}

{{- define "privstream.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "privstream.name" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* What every container of a pod has: image, rights, environment, files. */}}
{{- define "privstream.container" -}}
{{- with .Values.image }}
image: {{ if .digest }}{{ printf "%s@%s" .repository .digest | quote }}{{ else }}{{ printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) | quote }}{{ end }}
{{- end }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
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
