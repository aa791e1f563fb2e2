{{/* name returns the prefix of all names: the release's, with the chart's unless the release is named for it. */}}
{{- define "ironplane.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* selector returns the labels that find the pods of a component. Its argument is (list root component). */}}
{{- define "ironplane.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* labels returns the labels of an item of a component. */}}
{{- define "ironplane.labels" -}}
{{- $root := index . 0 -}}
{{ include "ironplane.selector" . }}
app.kubernetes.io/version: {{ $root.Values.image.tag | default $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end -}}

{{/* processes returns the gateway and all services with their values, as YAML. */}}
{{- define "ironplane.processes" -}}
{{- merge (dict "gateway" .Values.gateway) .Values.services | toYaml -}}
{{- end -}}

{{/* image returns the image of a program. */}}
{{- define "ironplane.image" -}}
{{- $image := (index . 0).Values.image -}}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
ironplane-{{ index . 1 }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}
{{- end -}}

{{/* usesVolume says whether the store of pxe is a volume. */}}
{{- define "ironplane.usesVolume" -}}
{{- if hasPrefix "/" (default "/store" (index .Values.services "pxe").environment.IRONPLANE_STORE) }}yes{{ end -}}
{{- end -}}

{{/* podSecurity and containerSecurity are what docker-compose.yml has. */}}
{{- define "ironplane.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "ironplane.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* pod returns what all pods have. */}}
{{- define "ironplane.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- include "ironplane.podSecurity" . | nindent 2 }}
{{- range $name := list "nodeSelector" "tolerations" "affinity" }}
{{- with index $.Values $name }}
{{ $name }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* environment returns the variables of a process: those of the chart, and then the values' that are not empty. Its argument is
(list root name values). */}}
{{- define "ironplane.environment" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $values := index . 2 -}}
{{- $services := list -}}
{{- range $service := keys $root.Values.services | sortAlpha -}}
{{- $services = append $services (printf "%s=%s-%s:8443" $service (include "ironplane.name" $root) $service) -}}
{{- end -}}
{{- $variables := dict
  "IRONPLANE_LISTEN" (ternary ":8080" ":8443" (eq $name "gateway"))
  "IRONPLANE_OPERATIONS_LISTEN" ":9090"
  "IRONPLANE_DRAIN_DELAY" (printf "%ds" (int $root.Values.drainDelaySeconds))
  "IRONPLANE_SERVICES" (join " " $services)
  "IRONPLANE_MAINTENANCE" "/maintenance/reason"
  "REDIS_URL_FILE" "/secrets/redis-url"
  "IRONPLANE_PROCESS_KEY_FILE" "/secrets/process-key"
  "IRONPLANE_MESH_CERTIFICATE" "/certificate/tls.crt"
  "IRONPLANE_MESH_KEY" "/certificate/tls.key"
  "IRONPLANE_MESH_CA" "/certificate/ca.crt"
-}}
{{- if ne $name "gateway" -}}
{{- $_ := set $variables "DATABASE_URL_FILE" "/secrets/database-url" -}}
{{- $_ := set $variables "IRONPLANE_CONNECTIONS" (toString $root.Values.connections) -}}
{{- end -}}
{{- range $variable, $value := merge (dict) (default (dict) $values.environment) $root.Values.environment -}}
{{- if ne (toString $value) "" -}}
{{- $_ := set $variables $variable (toString $value) -}}
{{- end -}}
{{- end -}}
{{- range $variable, $value := $variables }}
- name: {{ $variable }}
  value: {{ $value | quote }}
{{- end }}
{{- range $variable, $from := merge (dict) (default (dict) $values.secretEnvironment) (default (dict) $root.Values.secretEnvironment) }}
{{- with $from.name }}
- name: {{ $variable }}
  valueFrom: {secretKeyRef: {name: {{ . }}, key: {{ $from.key | default $variable }}}}
{{- end }}
{{- end }}
{{- end -}}
