"""What any program for Kubernetes needs, without knowledge of MiniClusters or queues."""
