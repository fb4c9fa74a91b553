"""Access tokens: random, kept as hashes only, valid for a time."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable

# Tokens that are valid at a time; the oldest make room.
MOST = 10_000


class Tokens:
    """The tokens that were issued, each valid for `seconds`."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        # Ends by hash, the earliest first, as all are valid for the same time.
        self._ends: dict[bytes, float] = {}

    def issue(self) -> str:
        now = self._clock()
        for hash_ in [hash_ for hash_, end in self._ends.items() if end <= now]:
            del self._ends[hash_]
        if len(self._ends) >= MOST:
            del self._ends[next(iter(self._ends))]
        token = secrets.token_urlsafe(32)
        self._ends[_hash(token)] = now + self._seconds
        return token

    def valid(self, token: str) -> bool:
        return self._ends.get(_hash(token), 0.0) > self._clock()

    def use_up(self, token: str) -> bool:
        """Whether the token was valid; it is not any more."""
        return self._ends.pop(_hash(token), 0.0) > self._clock()


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
