"""The key-value store (RFC 11)."""
