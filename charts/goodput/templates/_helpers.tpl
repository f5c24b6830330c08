{{- define "goodput.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "goodput.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "goodput.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "goodput.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "goodput.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "goodput.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{- define "goodput.image" -}}
{{- if .Values.image.digest -}}
{{ printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else -}}
{{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end -}}
{{- end -}}

{{/* What the operator does in the namespaces that it serves. */}}
{{- define "goodput.namespacedRules" -}}
# What users write: read. Status: written. No spec, no finalizer, no annotation of theirs is ever touched.
- apiGroups: [goodput.dev]
  resources: [models]
  verbs: [get]
- apiGroups: [goodput.dev]
  resources: [models, slos]
  verbs: [list, watch]
- apiGroups: [goodput.dev]
  resources: [models/status, slos/status]
  verbs: [patch]
# Victims of a scale-down are marked by pod-deletion-cost. Get is there for the routers: who grants it must hold it.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch]
# The objects of a Model. Server-side apply is a patch, and a create where nothing exists yet.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
# The check of a change: made, watched and deleted, never edited.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, serviceaccounts, configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
# Neither escalate nor bind: the operator can grant only what it holds.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, list, watch, create, patch, delete]
# What was decided for a Model, in its namespace.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# Other autoscalers of our Deployments are reported, never fought.
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list, watch]
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: [list, watch]
{{- end -}}
