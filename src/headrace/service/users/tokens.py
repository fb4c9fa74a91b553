"""Access tokens in memory: random, kept only as hashes, valid for a limited time, revoked by id."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

# The maximum number of valid tokens. A further token replaces the oldest.
MOST = 10_000
# The maximum length of a note, in characters.
LONGEST_NOTE = 200


class Token(NamedTuple):
    """The description of a token, without its text. Times are in seconds since the epoch.

    A session is the token of a browser's cookie.
    """

    id: str
    user: str
    note: str
    session: bool
    issued: float
    ends: float


class Tokens:
    """The tokens of the user `name`, each valid for `seconds` unless it is issued for another time."""

    def __init__(self, seconds: float, name: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._name = name
        self._clock = clock
        # By the hash of each token: when it ends by `clock`, and its Token.
        self._valid: dict[bytes, tuple[float, Token]] = {}

    def issue(self, session: bool = False) -> str:
        """Issue a token and return its text, which is not kept."""
        return self.issue_known(session=session)[0]

    def issue_known(self, note: str = "", session: bool = False, seconds: float | None = None) -> tuple[str, Token]:
        """Issue a token, and return its text and its description."""
        if len(self._valid) >= MOST:
            self._forget_ended()
        if len(self._valid) >= MOST:
            del self._valid[next(iter(self._valid))]
        text, length, now = secrets.token_urlsafe(32), seconds or self._seconds, time.time()
        made = Token(secrets.token_hex(4), self._name, note[:LONGEST_NOTE], session, now, now + length)
        self._valid[_hash(text)] = (self._clock() + length, made)
        return text, made

    def valid(self, token: str) -> bool:
        return self._valid.get(_hash(token), (0.0, None))[0] > self._clock()

    def use_up(self, token: str) -> bool:
        """Make a token invalid. True if it was valid until now."""
        return self._valid.pop(_hash(token), (0.0, None))[0] > self._clock()

    def listed(self) -> list[Token]:
        """The valid tokens, the newest first."""
        self._forget_ended()
        return [token for _, token in reversed(self._valid.values())]

    def revoke(self, id: str) -> Token | None:
        """End the token with the id and return its description; None if no valid token has the id."""
        self._forget_ended()
        for hash_, (_, token) in self._valid.items():
            if token.id == id:
                del self._valid[hash_]
                return token
        return None

    def _forget_ended(self) -> None:
        now = self._clock()
        for hash_ in [hash_ for hash_, (end, _) in self._valid.items() if end <= now]:
            del self._valid[hash_]


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
