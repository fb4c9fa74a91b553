"""Operations on MiniClusters on Kubernetes, with the user's own rights."""
