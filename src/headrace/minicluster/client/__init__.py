"""Users' calls about MiniClusters on Kubernetes, with their own rights."""
