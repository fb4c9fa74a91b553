"""The store of users and tokens, for values of `--auth` with several users, and its errors."""

from __future__ import annotations


class StoreError(ValueError):
    """The store cannot be used, or a request to it is wrong. The text is for users."""


class StoreUnusable(StoreError):
    """The database cannot be read or written now, as on a full disk. The text is for users."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the store of users cannot be used: {why}")


class NoSuchToken(StoreError):
    """No valid token of the user has the id."""


class UseridTaken(StoreError):
    """The userid that passwd has for a user belongs to another user in the store."""


class NoSuchUser(StoreError):
    """No user has the name."""
