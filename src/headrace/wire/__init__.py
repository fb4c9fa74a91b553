"""The client side of a broker's connections: handles, calls that commands share, and the Python bindings."""
