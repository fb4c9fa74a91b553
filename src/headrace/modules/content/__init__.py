"""Blobs by their hash (RFC 10)."""
