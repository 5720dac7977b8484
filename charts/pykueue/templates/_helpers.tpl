{{- /* The configuration as the manager gets it. */}}
{{- define "pykueue.config" -}}
{{- $config := fromYaml .Values.config -}}
{{- if hasKey $config "Error" }}{{ fail (printf "config is not YAML: %s" $config.Error) }}{{ end -}}
{{- $namespace := .Release.Namespace -}}
{{- if ne (dig "namespace" $namespace $config) $namespace -}}
{{- fail (printf "config says namespace: %s, the release is in %s" $config.namespace $namespace) -}}
{{- end -}}
{{- range $key := list "webhookServiceName" "webhookSecretName" -}}
{{- if dig "internalCertManagement" $key "" $config -}}
{{- fail (printf "this chart has its own name for internalCertManagement.%s" $key) -}}
{{- end -}}
{{- end -}}
{{- $internal := dict "enable" (not .Values.certManager.enabled) -}}
{{- $given := dict "namespace" $namespace "internalCertManagement" $internal -}}
{{- mergeOverwrite $config $given | toYaml -}}
{{- end -}}

{{- /* The job kinds that are queued, as JSON. */}}
{{- define "pykueue.frameworks" -}}
{{- dig "integrations" "frameworks" (list) (fromYaml .Values.config) | default (list "batch/job") | toJson -}}
{{- end -}}
