"""The service that `headrace api start` runs: one instance from scripts (`rest/`) and from a browser (`pages/`).

It is a client of its instance like any other: what may be done is decided by the broker, and no job is kept here. Its
libraries come with the extra `api`.
"""
