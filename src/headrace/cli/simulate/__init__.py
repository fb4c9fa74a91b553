"""`headrace simulate`."""
