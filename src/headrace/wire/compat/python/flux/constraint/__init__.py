"""Constraint queries."""
