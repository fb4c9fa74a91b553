"""The first-come-first-served scheduler."""
