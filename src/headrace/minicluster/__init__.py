"""MiniClusters: fields and rules (api), local runs and pods (run), the operator, and the client."""
