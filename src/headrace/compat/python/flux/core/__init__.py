"""Handles, watchers and reactors, under the names of flux-core's bindings."""
