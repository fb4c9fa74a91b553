"""`headrace mini`: MiniClusters on this machine and on Kubernetes."""
