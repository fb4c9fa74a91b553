"""`flux queue`."""
