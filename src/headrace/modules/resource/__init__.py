"""What resources there are, and which can be used (RFC 28, RFC 44)."""
