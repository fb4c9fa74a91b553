"""The REST interfaces of the service: the one of flux-restful-api (`v1`), and Headrace's own (`v2`)."""
