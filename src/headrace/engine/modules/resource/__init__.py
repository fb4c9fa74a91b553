"""The resource service (RFC 28, RFC 44): the instance's resources, and which ones can be allocated."""
