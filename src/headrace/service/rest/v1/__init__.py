"""`/v1`: the interface of flux-restful-api, so that its clients and scripts work unchanged."""
