"""The metrics APIs of Kubernetes, which autoscalers read: what MiniClusters tell, for all of a cluster."""
