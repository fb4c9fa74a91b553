"""The accounts of the service and their tokens: the owner alone, or the users of a store.

Both kinds have the same methods, so `Access` and the routes need not distinguish them. The module `people` decides
which accounts and tokens a user may see.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import os
import pwd
import secrets
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headrace.service.settings import Settings
from headrace.service.store import NoSuchToken, NoSuchUser, StoreError, StoreUnusable, UseridTaken
from headrace.service.users import credential
from headrace.service.users.credential import Identity
from headrace.service.users.tokens import Token, Tokens
from headrace.service.users.userids import UseridMismatch, Userids, mismatch
from headrace.wire.query.job_info import name_user

if TYPE_CHECKING:
    from headrace.service.store.database import Store
    from headrace.service.store.users import User


# Smaller userids belong to system accounts (`UID_MIN` of login.defs).
_LEAST_USERID = 1000
# Seconds until the same error of the store is written again.
_SILENCE = 3600.0
_ONE_USER = "this service has one user, the owner of the instance: for several users, start it with --auth users"


class Account(NamedTuple):
    """A user as shown to administrators. `added` is in seconds since the epoch, None for the owner."""

    name: str
    userid: int
    admin: bool
    added: float | None


class Accounts(Protocol):
    """The accounts of a service.

    `several` is True if there may be users other than the owner. `logs_in` is True if users log in here by name and
    password. `help` is the text for users without a valid token: how to get one.
    """

    several: bool
    logs_in: bool
    help: str

    async def of_token(self, token: str) -> Identity | None:
        """The user of a token, None if it is not valid. Raises UseridMismatch."""

    def issue(self, identity: Identity, session: bool = False) -> str:
        """Issue a token and return its text. The token of a session is for a cookie."""

    def issue_known(self, identity: Identity, note: str, seconds: float) -> tuple[str, Token]:
        """Issue a token for scripts, and return its text and its description."""

    def end(self, token: str) -> None:
        """Make a token invalid."""

    def tokens(self, name: str) -> list[Token]:
        """The valid tokens of a user ("": of all), the newest first. Raises NoSuchUser."""

    def revoke(self, id: str, name: str) -> Token:
        """Make the token with the id invalid; with `name` it must be that user's. Raises NoSuchToken."""

    async def of_password(self, name: str, password: str) -> Identity | None:
        """The user with this name and password, None if wrong. Raises UseridMismatch."""

    def users(self) -> list[Account]:
        """All users, by name."""

    async def add(self, name: str, password: str, admin: bool) -> Account:
        """Add a user. Raises StoreError."""

    async def change(self, name: str, password: str | None, admin: bool | None) -> Account:
        """Change what is not None; a new password ends the user's tokens. Raises StoreError."""

    def remove(self, name: str) -> None:
        """Remove a user and the user's tokens. Raises StoreError."""


class Owner:
    """The owner of the instance as the only user. Tokens are in memory and end with the service."""

    several = False
    logs_in = False
    help = "run `headrace api url` on the machine of this service, as the user who started it, and open what it prints"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._identity = credential.owner()
        self._tokens = Tokens(settings.token_minutes * 60, self._identity.name)

    async def of_token(self, token: str) -> Identity | None:
        return self._identity if self._tokens.valid(token) else None

    def issue(self, identity: Identity, session: bool = False) -> str:
        return self._tokens.issue(session)

    def issue_known(self, identity: Identity, note: str, seconds: float) -> tuple[str, Token]:
        return self._tokens.issue_known(note, seconds=seconds)

    def end(self, token: str) -> None:
        self._tokens.use_up(token)

    def tokens(self, name: str) -> list[Token]:
        if name not in ("", self._identity.name):
            raise NoSuchUser(f"there is no user '{name}'")
        return self._tokens.listed()

    def revoke(self, id: str, name: str) -> Token:
        found = self._tokens.revoke(id)
        if found is None:
            raise NoSuchToken(f"there is no valid token with the id '{id}'")
        return found

    async def of_password(self, name: str, password: str) -> Identity | None:
        return self._identity if password_matches(name, password, self._settings) else None

    def users(self) -> list[Account]:
        return [Account(self._identity.name, self._identity.userid, admin=True, added=None)]

    async def add(self, name: str, password: str, admin: bool) -> Account:
        raise StoreError(_ONE_USER)

    async def change(self, name: str, password: str | None, admin: bool | None) -> Account:
        raise StoreError(_ONE_USER)

    def remove(self, name: str) -> None:
        raise StoreError(_ONE_USER)


class StoredUsers:
    """The users of the store, managed by `headrace api users`.

    Changes apply from the next request on. A user with another userid in passwd is refused.
    """

    several = True
    logs_in = True
    help = "log in"

    def __init__(self, store: Store, seconds: float, must_be_in_passwd: bool = False) -> None:
        # Imported here, because a service with one user does not need these modules in memory.
        from headrace.service.store import tokens, users

        self._store = store
        self._seconds = seconds
        self._tokens = tokens
        self._users = users
        self._userids = Userids(must_be_in_passwd)
        for userid, name in users.names(store).items():
            if not mismatch(name, userid):
                name_user(userid, name)
        # Passwords are verified one at a time, because each verification takes 64 MiB.
        self._verifying = asyncio.Semaphore(1)

    async def of_token(self, token: str) -> Identity | None:
        return await self._identity(self._tokens.user_of(self._store, token))

    async def _identity(self, found: User | None) -> Identity | None:
        """The identity of a user of the store. Raises UseridMismatch."""
        if found is None:
            return None
        await self._userids.check(found.name, found.userid)
        # Jobs are shown with the names of their users. The name of a user who was added after the start is registered
        # here, because only a user who was let in can have submitted jobs.
        name_user(found.userid, found.name)
        return credential.user(found.name, found.userid, found.admin)

    def issue(self, identity: Identity, session: bool = False) -> str:
        user = self._users.one(self._store, identity.name)
        return self._tokens.issue(self._store, user, self._seconds, session=session)[0]

    def issue_known(self, identity: Identity, note: str, seconds: float) -> tuple[str, Token]:
        return self._tokens.issue(self._store, self._users.one(self._store, identity.name), seconds, note)

    def end(self, token: str) -> None:
        self._tokens.revoke_itself(self._store, token)

    def tokens(self, name: str) -> list[Token]:
        return self._tokens.listed(self._store, name)

    def revoke(self, id: str, name: str) -> Token:
        return self._tokens.revoke(self._store, id, name)

    async def of_password(self, name: str, password: str) -> Identity | None:
        async with self._verifying:
            found = await asyncio.to_thread(self._users.verified, self._store, name, password)
        return await self._identity(found)

    def users(self) -> list[Account]:
        return [_account(one) for one in self._users.everybody(self._store)]

    async def add(self, name: str, password: str, admin: bool) -> Account:
        async with self._verifying:
            found = await asyncio.to_thread(self._users.add, self._store, name, password, admin)
        return _account(found)

    async def change(self, name: str, password: str | None, admin: bool | None) -> Account:
        async with self._verifying:
            found = await asyncio.to_thread(self._users.change, self._store, name, password, admin)
        return _account(found)

    def remove(self, name: str) -> None:
        self._users.remove(self._store, name)


class ProxiedUsers(StoredUsers):
    """The users of the store, logged in by a proxy.

    With `adds_unknown`, users who were never in the store are added.
    """

    logs_in = False
    help = "log in at the proxy before this service, which has named no user"

    def __init__(self, store: Store, seconds: float, adds_unknown: bool, must_be_in_passwd: bool = False) -> None:
        super().__init__(store, seconds, must_be_in_passwd)
        self._adds_unknown = adds_unknown

    async def of_name(self, name: str) -> Identity | None:
        """The user whom the proxy names, None if the store lacks the user. Raises UseridMismatch."""
        found = self._one(name)
        if found is None and self._adds_unknown and not self._was_removed(name):
            if not await asyncio.to_thread(is_of_the_system, name):
                await self._add_unknown(name)
            found = self._one(name)
        return await self._identity(found)

    async def _add_unknown(self, name: str) -> None:
        try:
            # The proxy logs users in, so the store gets a random password that nobody knows.
            await self.add(name, secrets.token_urlsafe(32), admin=False)
        except UseridTaken as exc:
            raise UseridMismatch(str(exc)) from None
        except StoreUnusable:
            raise
        except StoreError:
            # The name is not valid, or another request has added the user meanwhile.
            pass

    def _one(self, name: str) -> User | None:
        try:
            found: User = self._users.one(self._store, name)
        except NoSuchUser:
            return None
        return found

    def _was_removed(self, name: str) -> bool:
        return name in self._users.names(self._store).values()

    async def of_password(self, name: str, password: str) -> Identity | None:
        return None


class PamUsers(ProxiedUsers):
    """The users of this machine, whose passwords PAM checks.

    The first login adds a user to the store, with the userid of passwd, unless the user was removed from the store.
    Passwords in the store are ignored.
    """

    logs_in = True
    help = "log in"

    def __init__(self, store: Store, seconds: float) -> None:
        super().__init__(store, seconds, adds_unknown=True, must_be_in_passwd=True)
        # Imported here, because only this kind starts processes.
        from headrace.service.users.pam import Passwords

        self._passwords = Passwords()

    async def of_password(self, name: str, password: str) -> Identity | None:
        return await self.of_name(name) if await self._passwords.right(name, password) else None


def is_of_the_system(name: str) -> bool:
    """True if passwd has the name for the owner or a system account, which a login does not add."""
    try:
        userid = pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        return False
    return userid < _LEAST_USERID or userid == os.getuid()


class Log:
    """The log of store errors on stderr. The same error is written at most once in _SILENCE seconds."""

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._written_at: dict[str, float] = {}

    def __call__(self, text: str) -> None:
        now = self._clock()
        if now - self._written_at.get(text, -math.inf) >= _SILENCE:
            self._written_at[text] = now
            print(f"headrace-api: {self._path}: {text}: users are answered 503", file=sys.stderr, flush=True)


def _account(user: User) -> Account:
    return Account(user.name, user.userid, user.admin, user.added)


def of(settings: Settings) -> Accounts:
    """The accounts for these settings. Raises StoreError if the store cannot be used."""
    if not settings.several:
        return Owner(settings)
    from headrace.service.store import database

    seconds = settings.token_minutes * 60
    store = database.open_file(settings.database, on_error=Log(settings.database))
    if settings.auth == "proxy":
        return ProxiedUsers(store, seconds, settings.adds_unknown)
    if settings.auth == "pam":
        return PamUsers(store, seconds)
    return StoredUsers(store, seconds)


def password_matches(user: Any, password: Any, settings: Settings) -> bool:
    """True if these are FLUX_USER and FLUX_TOKEN, and FLUX_TOKEN is set.

    The check of a wrong name takes as long as that of a wrong password.
    """
    if not (isinstance(user, str) and isinstance(password, str) and settings.password):
        return False
    right_user = hmac.compare_digest(_bytes(user), _bytes(settings.user))
    return hmac.compare_digest(_bytes(password), _bytes(settings.password)) and right_user


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
