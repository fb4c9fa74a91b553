"""`headrace fluxqueue`: the job queue of a Kubernetes cluster."""
