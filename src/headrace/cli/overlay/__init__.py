"""`flux overlay`."""
