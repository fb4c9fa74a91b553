"""`headrace api`: the service for scripts and browsers."""
