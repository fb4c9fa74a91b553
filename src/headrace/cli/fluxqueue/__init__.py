"""`headrace fluxqueue`: the queue for all pods of a Kubernetes cluster."""
