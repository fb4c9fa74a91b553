"""Authentication of a request: by a token in a header or cookie, a proxy's header, or a password."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from starlette.requests import Request

from headrace.service.settings import Settings
from headrace.service.users import accounts, credential
from headrace.service.users.credential import Identity
from headrace.service.users.tokens import Tokens
from headrace.service.users.userids import UseridMismatch

# After so many failures of a user at an address, within so many seconds, further attempts are refused.
MOST_FAILURES, WINDOW = 5, 60.0
# The maximum number of pairs of user and address that are remembered. A further pair replaces the oldest.
MOST_PAIRS = 10_000
# Seconds for which a printed login address is valid.
_LOGIN_SECONDS = 3600.0
# The maximum length of a login name, in characters (LOGIN_NAME_MAX of Linux).
_LONGEST_NAME = 256


class TooManyFailures(PermissionError):
    """Attempts are refused for `wait` seconds after too many failures. The text is for users."""

    def __init__(self, wait: int) -> None:
        super().__init__(f"too many failures: try again in {wait} s")
        self.wait = wait


class Attempts:
    """A limit on guessing passwords: the failures of each user at each address within WINDOW seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[tuple[str, str], deque[float]] = {}

    def check(self, user: str, address: str) -> None:
        """Raise TooManyFailures if the next attempt must be refused."""
        failures = self._failures.get((user, address))
        if failures is not None and len(failures) == MOST_FAILURES:
            wait = failures[0] + WINDOW - self._clock()
            if wait > 0:
                raise TooManyFailures(math.ceil(wait))

    def failed(self, user: str, address: str) -> None:
        if (user, address) not in self._failures and len(self._failures) >= MOST_PAIRS:
            del self._failures[next(iter(self._failures))]
        self._failures.setdefault((user, address), deque(maxlen=MOST_FAILURES)).append(self._clock())

    def succeeded(self, user: str, address: str) -> None:
        self._failures.pop((user, address), None)


def cookie_name(request: Request) -> str:
    """The name of the page's cookie.

    It has the port, because browsers send the cookies of a host to all of its ports.
    """
    return f"headrace-{request.url.port or request.url.scheme}"


def address(request: Request) -> str:
    """The client's address; "unix" for a unix socket, which has no addresses."""
    return request.client.host if request.client else "unix"


class Unauthenticated(PermissionError):
    """The request has no valid token. The text is for users."""


class Access:
    """Authentication by the accounts of this service. `logins` has the tokens of one-time addresses."""

    def __init__(self, settings: Settings) -> None:
        self.needed = settings.auth != "none"
        self.seconds = settings.token_minutes * 60
        self.accounts = accounts.of(settings)
        self.logins = Tokens(_LOGIN_SECONDS)
        self._attempts = Attempts()
        self._proxy_header = settings.proxy_header if settings.auth == "proxy" else ""

    @property
    def has_sessions(self) -> bool:
        """True if pages identify the user by a cookie, so that users can log out."""
        return self.needed and not self._proxy_header

    async def of_header(self, request: Request) -> Identity:
        """The user of the token in the header `Authorization`, or the user whom the proxy names.

        Raises Unauthenticated, UseridMismatch.
        """
        if not self.needed:
            return credential.owner()
        if self._proxy_header in request.headers:
            return await self._of_proxy(request)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthenticated("a token is needed: Authorization: Bearer TOKEN")
        found = await self.accounts.of_token(token.strip())
        if found is None:
            raise Unauthenticated("the token is not valid, or has expired or was revoked")
        return found

    async def of_cookie(self, request: Request) -> Identity:
        """The user of the token in the page's cookie, or the user whom the proxy names.

        Raises Unauthenticated, UseridMismatch.
        """
        if not self.needed:
            return credential.owner()
        if self._proxy_header:
            return await self._of_proxy(request)
        token = request.cookies.get(cookie_name(request), "")
        found = await self.accounts.of_token(token) if token else None
        if found is None:
            raise Unauthenticated(self.accounts.help)
        return found

    async def _of_proxy(self, request: Request) -> Identity:
        names = request.headers.getlist(self._proxy_header)
        if len(names) > 1:
            raise Unauthenticated(f"the header {self._proxy_header} came more than once: the proxy must replace it")
        if not names or not names[0] or not isinstance(self.accounts, accounts.ProxiedUsers):
            raise Unauthenticated(self.accounts.help)
        # For the audit.
        request.state.login = names[0]
        found = await self.accounts.of_name(names[0])
        if found is None:
            raise Unauthenticated(f"'{names[0]}', the user named by the proxy, is not a user of this service")
        return found

    async def of_password(self, request: Request, name: Any, password: Any) -> Identity | None:
        """The user with this name and password, None if wrong. Raises TooManyFailures, UseridMismatch."""
        if not (isinstance(name, str) and isinstance(password, str) and name and password):
            return None
        where = address(request)
        # For the audit.
        request.state.login = name
        if len(name) > _LONGEST_NAME:
            # No user has such a name. The attempt is not recorded, because recorded names take memory.
            return None
        self._attempts.check(name, where)
        # The attempt counts as a failure until the password is verified, so that concurrent attempts count, too.
        self._attempts.failed(name, where)
        try:
            found = await self.accounts.of_password(name, password)
        except UseridMismatch:
            # The password was right.
            self._attempts.succeeded(name, where)
            raise
        if found is not None:
            self._attempts.succeeded(name, where)
        return found
