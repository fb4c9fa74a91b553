"""Building blocks for any Kubernetes program; they know nothing of MiniClusters or queues."""
