"""Who may use the service, and by which tokens: the owner alone, or the users of a store.

Both kinds answer the same questions, so that `Access` and the routes need not tell them apart.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from headrace.api.identity import credential, passwords
from headrace.api.identity.credential import Identity
from headrace.api.identity.tokens import Tokens
from headrace.api.settings import Settings
from headrace.query.job_info import name_user

if TYPE_CHECKING:
    from sqlalchemy import Engine


class Accounts(Protocol):
    """`several`: whether users log in by name and password; `help`: how one who has no valid token gets one."""

    several: bool
    help: str

    def of_token(self, token: str) -> Identity | None:
        """Whose valid token this is."""

    def issue(self, identity: Identity, session: bool = False) -> str:
        """A new token; a session's is for a cookie."""

    def end(self, token: str) -> None:
        """Make a token invalid."""

    async def of_password(self, name: str, password: str) -> Identity | None:
        """The user of this name and password."""


class Owner:
    """The owner of the instance, alone. His tokens are in memory and end with the service."""

    several = False
    help = "open the address that the service printed when it started"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._identity = credential.owner()
        self._tokens = Tokens(settings.token_minutes * 60)

    def of_token(self, token: str) -> Identity | None:
        return self._identity if self._tokens.valid(token) else None

    def issue(self, identity: Identity, session: bool = False) -> str:
        return self._tokens.issue()

    def end(self, token: str) -> None:
        self._tokens.use_up(token)

    async def of_password(self, name: str, password: str) -> Identity | None:
        return self._identity if passwords.matches(name, password, self._settings) else None


class StoredUsers:
    """The users of the store, whom `headrace api users` adds. What is changed there holds for the next request."""

    several = True
    help = "log in"

    def __init__(self, engine: Engine, seconds: float) -> None:
        # Imported here: a service with one user needs no memory for it.
        from headrace.api.store import tokens, users

        self._engine = engine
        self._seconds = seconds
        self._tokens = tokens
        self._users = users
        for userid, name in users.names(engine).items():
            name_user(userid, name)
        # One password at a time is verified, which takes 64 MiB.
        self._verifying = asyncio.Semaphore(1)

    def of_token(self, token: str) -> Identity | None:
        found = self._tokens.user_of(self._engine, token)
        if found is None:
            return None
        # A user may have been added since the start, and only a user with a token can submit jobs, which show the name.
        name_user(found.userid, found.name)
        return credential.user(found.name, found.userid, found.admin)

    def issue(self, identity: Identity, session: bool = False) -> str:
        user = self._users.one(self._engine, identity.name)
        return self._tokens.issue(self._engine, user, self._seconds, session=session)[0]

    def end(self, token: str) -> None:
        self._tokens.revoke_itself(self._engine, token)

    async def of_password(self, name: str, password: str) -> Identity | None:
        async with self._verifying:
            found = await asyncio.to_thread(self._users.verified, self._engine, name, password)
        return None if found is None else credential.user(found.name, found.userid, found.admin)


def of(settings: Settings) -> Accounts:
    """The accounts that the settings say. Raises StoreError where the store cannot be used."""
    if settings.auth != "users":
        return Owner(settings)
    from headrace.api.store import database

    return StoredUsers(database.open_file(settings.database), settings.token_minutes * 60)
