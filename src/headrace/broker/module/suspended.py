"""A module that is suspended instead of removed, because its partners must not notice its reload.

The job manager would otherwise lose the open requests of its watchers, and those that it has with the exec service.
While a module is suspended, requests to it are refused, and responses to its own requests are queued; it sends none, so
their number is bounded.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple, Protocol

from headrace.spec import message as m
from headrace.spec.message import Message


class Resumption(NamedTuple):
    """How a module is resumed: `resume(args)` is called in place of another load.

    `holds(topic)` tells which messages belong to what is suspended; other topics of the module are served all the time.
    Requests among them are refused, except for `hellos`, by which partners that are loaded meanwhile register.
    """

    resume: Callable[[list[str]], None]
    holds: Callable[[str], bool]
    hellos: frozenset[str] = frozenset()


class Suspendable(Protocol):
    """A module's context, as far as a suspension needs it."""

    returns: Resumption | None
    suspended: SuspendedModule | None

    def send(self, msg: Message) -> None: ...
    def respond_error(self, msg: Message, errnum: int, text: str = "") -> None: ...


class SuspendedModule:
    """A removed module, and the messages that were queued for it."""

    def __init__(self, ctx: Suspendable) -> None:
        self._ctx = ctx
        self._queue: list[Message] = []

    def take(self, msg: Message) -> bool:
        """Queue or refuse a message for the suspended module; False if it is for a part that is still served."""
        returns = self._ctx.returns
        if returns is None or not returns.holds(msg.topic):
            return False
        if msg.type == m.REQUEST and not msg.noresponse and msg.topic not in returns.hellos:
            self._ctx.respond_error(msg, errno.ENOSYS, "No service matching " + msg.topic + " is registered")
        else:
            self._queue.append(msg)
        return True

    def end(self, args: list[str]) -> None:
        """Resume the module and deliver the queue. If `resume` raises, the module stays suspended."""
        assert self._ctx.returns is not None
        self._ctx.returns.resume(args)
        self.read()

    def read(self) -> None:
        """End the suspension and deliver the queued messages."""
        self._ctx.suspended = None
        for msg in self._queue:
            self._ctx.send(msg)
