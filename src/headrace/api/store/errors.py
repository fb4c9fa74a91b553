"""What the store raises."""

from __future__ import annotations


class StoreError(ValueError):
    """The database cannot be used, or what is asked of it is wrong; the text is for users."""
