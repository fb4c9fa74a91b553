"""The states of an instance, and its data on disk."""
