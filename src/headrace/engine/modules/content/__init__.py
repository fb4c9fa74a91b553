"""The content store: blobs by their hash (RFC 10)."""
