"""The metrics APIs of Kubernetes, which autoscalers read, for any program that serves them. Pure."""
