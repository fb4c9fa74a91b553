"""The REST interfaces of the service: that of flux-restful-api (`v1`), and ours (`v2`)."""
