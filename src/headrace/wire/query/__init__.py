"""What commands, bindings and services share about listing and submitting jobs. Nothing here prints."""

from __future__ import annotations


class QueryError(ValueError):
    """A request is wrong, or names something that does not exist; the text is for users."""
