"""The client side of broker connections: handles, calls that commands share, and the Python bindings."""
