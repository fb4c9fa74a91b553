"""Who a request comes from."""
