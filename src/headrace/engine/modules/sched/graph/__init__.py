"""The scheduler of the resource graph."""
