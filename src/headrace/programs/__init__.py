"""The programs that serve a Kubernetes cluster: their parts, their installation and their removal."""
