"""Names, ports and the path of the operator itself, which its install files, its program and users' tools share."""

from __future__ import annotations

DEFAULT_NAMESPACE = "headrace-system"
# Deployment, service account, roles, and the label `app.kubernetes.io/name` of them all.
OPERATOR = "headrace-operator"
LEASE = OPERATOR
# The Service of the webhook and the Secret of its certificate.
WEBHOOK = "headrace-webhook"
CONFIGURATION = "headrace-miniclusters"
WEBHOOK_PATH = "/validate"
WEBHOOK_PORT = 9443
METRICS_PORT = 8080
HEALTH_PORT = 8081
# The Lease of the Flux Operator that is written in Go (leader-election id of its manager).
OTHER_LEASE = "14dde902.flux-framework.org"
