"""The resource service: the instance's resources, and which of them can be allocated (RFC 28, RFC 44)."""
