"""Modules (RFC 5): their context, and their loading, in the broker or in their own process."""
