"""Services of the broker itself."""
