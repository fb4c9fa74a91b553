"""Functions that commands, bindings and services share to list and submit jobs. Nothing here prints."""

from __future__ import annotations


class QueryError(ValueError):
    """A request is invalid, or names something that does not exist; the text is for users."""
