"""Services that are the broker itself."""
