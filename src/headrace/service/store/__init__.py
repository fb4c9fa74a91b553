"""Users and tokens of `--auth` with several users, and what goes wrong with them."""

from __future__ import annotations


class StoreError(ValueError):
    """The database cannot be used, or what is asked of it is wrong; the text is for users."""


class StoreUnusable(StoreError):
    """The database cannot be read or written now, as on a full disk; the text is for users."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the store of users cannot be used: {why}")


class NoSuchToken(StoreError):
    """No valid token of the user has the id."""


class UseridTaken(StoreError):
    """The userid that passwd has for a user is another user's in the store."""


class NoSuchUser(StoreError):
    """No user has the name."""
