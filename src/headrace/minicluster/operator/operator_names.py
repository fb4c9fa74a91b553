"""Names, ports and the path of the operator itself, for its install files, its program and users' tools."""

from __future__ import annotations

DEFAULT_NAMESPACE = "headrace-system"
# The name of Deployment, service account and roles, and the value of their label `app.kubernetes.io/name`.
OPERATOR = "headrace-operator"
LEASE = OPERATOR
# The ClusterRole with the rights to register the APIs of metrics. It owns their APIServices.
METRICS_ROLE = f"{OPERATOR}-metrics-api"
# The Service of the webhook and the Secret of its certificate.
WEBHOOK = "headrace-webhook"
# The webhook configurations and paths: MiniClusters are judged, and labelled Jobs become clusters.
CONFIGURATION = "headrace-miniclusters"
WEBHOOK_PATH = "/validate"
JOBS_CONFIGURATION = "headrace-jobs"
JOBS_PATH = "/mutate-jobs"
WEBHOOK_PORT = 9443
METRICS_PORT = 8080
HEALTH_PORT = 8081
# The Lease of the Flux Operator in Go (leader-election id of its manager).
OTHER_LEASE = "14dde902.flux-framework.org"
# The namespace that its own install makes, where that Lease is.
OTHER_NAMESPACE = "operator-system"
