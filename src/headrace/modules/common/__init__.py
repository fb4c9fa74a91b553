"""Helpers of several services."""
