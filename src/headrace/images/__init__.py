"""Builds container images without a container engine: the view, the operator's image, and archives of both.

Used by `make images` and by tests. Nothing else of Headrace imports this room.
"""
