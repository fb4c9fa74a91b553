"""Modules (RFC 5): their context, and how they are loaded, in the broker or in a process of their own."""
