"""Headrace's `import flux` for programs that are written for Flux."""
