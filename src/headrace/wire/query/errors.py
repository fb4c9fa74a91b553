"""What this room raises for a request that is wrong: the text tells the user what it is, in a command and elsewhere."""

from __future__ import annotations


class QueryError(ValueError):
    """What was asked for is wrong or is not there."""
