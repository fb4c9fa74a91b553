"""Builds container images without a container engine.

They are the view, the operator's image, and archives of both. Used by `make images` and by tests. Nothing else in
Headrace imports this package.
"""
