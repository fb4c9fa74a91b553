"""`flux config`."""
