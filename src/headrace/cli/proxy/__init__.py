"""`flux proxy`."""
