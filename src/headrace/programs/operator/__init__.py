"""The operator of MiniClusters and of Flux clusters made of Jobs."""
