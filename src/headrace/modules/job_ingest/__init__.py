"""Checks and accepts jobs that are submitted."""
