"""`/v1`: the interface of flux-restful-api, so that its clients and scripts for it work as they are."""
