"""The HTTPS server of an admission webhook, and its certificates."""
