"""The HTTP service of an instance, run by `headrace api start`: REST (`rest/`) and pages (`pages/`).

The service is an ordinary client of its instance. The broker decides what each user may do, and the service stores no
jobs. The optional dependency `api` installs its libraries.
"""
