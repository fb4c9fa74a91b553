"""Schedulers: what both share, first come first served, and the resource graph."""
