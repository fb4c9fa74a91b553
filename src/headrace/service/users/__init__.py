"""Authentication: the user of a request."""
