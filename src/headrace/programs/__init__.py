"""The programs that serve a Kubernetes cluster: what each is made of, and how it is installed and removed."""
