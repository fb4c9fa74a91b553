"""`headrace api`: the HTTP service for scripts and browsers."""
