"""`/v2`: Headrace's own interface for scripts, in JSON."""
