"""Modules (RFC 5): what they are given, and how they are loaded, here or in a process of their own."""
