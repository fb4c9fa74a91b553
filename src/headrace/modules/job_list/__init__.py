"""Lists jobs (RFC 43)."""
