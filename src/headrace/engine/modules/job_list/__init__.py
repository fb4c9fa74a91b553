"""The job-list service (RFC 43)."""
