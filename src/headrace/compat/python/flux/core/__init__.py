"""Handles, watchers and reactors (the names that flux-core's bindings have them under)."""
