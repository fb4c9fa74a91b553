"""Users, tokens and the audit, limited to the records that the requesting user may see and change.

Users see their own tokens and lines of the audit. The owner and administrators see all users, tokens and lines. To
other users, a token that is not their own does not exist.
"""

from __future__ import annotations

import asyncio
import errno
import os

from headrace.service import audit
from headrace.service.users.access import Access
from headrace.service.users.accounts import Account, is_of_the_system
from headrace.service.users.credential import Identity
from headrace.service.users.tokens import Token


class AdminsOnly(PermissionError):
    """The requesting user is not an administrator. The text is for users."""


class NoAudit(LookupError):
    """The service keeps no audit. The text is for users."""


class People:
    """Users, tokens and audit for the requesting user. Methods raise AdminsOnly and StoreError."""

    def __init__(self, access: Access, identity: Identity, audit_file: str) -> None:
        self._accounts = access.accounts
        self._longest = access.seconds
        self._identity = identity
        self._audit_file = audit_file

    def tokens(self, user: str = "") -> list[Token]:
        """The valid tokens of a user ("": the requesting user, "all": all users), the newest first.

        Raises NoSuchUser.
        """
        if user and user != self._identity.name:
            self._check_admin()
        return self._accounts.tokens("" if user == "all" else user or self._identity.name)

    def issue(self, note: str = "", seconds: float | None = None) -> tuple[str, Token]:
        """Issue a token for the requesting user, valid no longer than a login. Its text is shown only once."""
        return self._accounts.issue_known(self._identity, note, min(seconds or self._longest, self._longest))

    def revoke(self, id: str) -> Token:
        """End a token. Raises NoSuchToken."""
        return self._accounts.revoke(id, "" if self._identity.sees_all else self._identity.name)

    def users(self) -> list[Account]:
        """All users, by name."""
        self._check_admin()
        return self._accounts.users()

    def userid_of(self, name: str) -> int | None:
        """The user id of a user of the service; None for others, and if the requesting user may not see users."""
        if not self._identity.sees_all:
            return None
        return next((user.userid for user in self._accounts.users() if user.name == name), None)

    async def add(self, name: str, password: str, admin: bool) -> Account:
        self._check_admin()
        if await asyncio.to_thread(is_of_the_system, name):
            text = f"'{name}' is the owner of the instance, or a user of the system: headrace api users add {name}"
            raise AdminsOnly(f"{text} is for the owner alone")
        return await self._accounts.add(name, password, admin)

    async def change(self, name: str, password: str | None, admin: bool | None) -> Account:
        """Change what is not None. Raises NoSuchUser."""
        self._check_admin()
        if admin is False:
            self._check_others(name)
        return await self._accounts.change(name, password, admin)

    def remove(self, name: str) -> None:
        """Remove a user. Raises NoSuchUser."""
        self._check_admin()
        self._check_others(name)
        self._accounts.remove(name)

    def audit(self, count: int, end: int | None = None) -> audit.Part:
        """`count` lines of the audit before its byte `end`, the newest first. Raises NoAudit."""
        if not self._audit_file:
            raise NoAudit("this service keeps no audit: headrace api start --audit FILE keeps one")
        try:
            return audit.read(self._audit_file, count, end, None if self._identity.sees_all else self._identity.userid)
        except FileNotFoundError:
            text = f"{self._audit_file}: {os.strerror(errno.ENOENT)}: the service has kept its audit there"
            raise NoAudit(text) from None

    def _check_others(self, name: str) -> None:
        """Raise AdminsOnly if the user is the last administrator: no one else could appoint another."""
        admins = [user.name for user in self._accounts.users() if user.admin]
        if admins == [name]:
            raise AdminsOnly(f"'{name}' is the only administrator: make another first")

    def _check_admin(self) -> None:
        if not self._identity.sees_all:
            raise AdminsOnly("only administrators may manage users, or see the tokens of other users")
