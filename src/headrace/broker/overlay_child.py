"""A neighbour below in the tree, as its parent sees it: where in its life it is, and what is under way with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ..spec.message import Message
from .outstanding import Outstanding


@dataclass
class Child:
    """A neighbour below, from hello until it is lost. Its `uuid` is also its ZeroMQ identity."""

    rank: int
    uuid: str = ""
    status: str = "offline"
    since: float = field(default_factory=time.monotonic)
    send: Callable[[Message], None] = lambda _msg: None
    # Requests that it has to answer, and those of its own and its subtree's that wait for an answer.
    owing: Outstanding = field(default_factory=Outstanding)
    asking: Outstanding = field(default_factory=Outstanding)
    error: str = ""
    host: str = ""
    heard: float = 0.0
    torpid: bool = False

    def become(self, status: str) -> None:
        if status != self.status:
            self.status = status
            self.since = time.monotonic()

    @property
    def title(self) -> str:
        """Rank and host, as far as it is known, for the log."""
        return f"rank {self.rank} ({self.host})" if self.host else f"rank {self.rank}"

    @property
    def alive(self) -> bool:
        return self.status not in ("offline", "lost")
