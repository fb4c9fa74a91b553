"""MiniClusters: their fields and rules (api), brokers for them (run), the operator, and users' calls (client)."""
