"""Suspension of a module instead of its removal, so that its partners do not notice a reload.

Otherwise the job manager would lose the open requests of its watchers, and its own requests to the exec service. While
a module is suspended, requests that expect a response are refused. All other messages for it are queued: responses to
its own requests, hellos of partners, events, and disconnect requests of its clients. It sends no new requests.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message

# The most queued messages, and the most of them from guests; later ones are dropped. Any client may send requests that
# expect no response, so their number is not limited otherwise.
_MOST, _MOST_OF_GUESTS = 100_000, 10_000


class Resumption(NamedTuple):
    """The way to resume a module: `resume(args)` is called in place of another load.

    `owns(topic)` is true for messages of the suspended part. Other topics of the module are served all the time.
    Requests of the suspended part are refused, except for `hellos`, with which partners that are loaded meanwhile
    register.
    """

    resume: Callable[[list[str]], None]
    owns: Callable[[str], bool]
    hellos: frozenset[str] = frozenset()


class Suspendable(Protocol):
    """The part of a module's context that a suspension needs."""

    name: str
    resumption: Resumption | None
    suspended: SuspendedModule | None

    def send(self, msg: Message) -> None: ...
    def respond_error(self, msg: Message, errnum: int, text: str = "") -> None: ...
    def log(self, level: int, text: str) -> None: ...


class SuspendedModule:
    """A removed module, and the messages that were queued for it."""

    def __init__(self, ctx: Suspendable) -> None:
        self._ctx = ctx
        self._queue: list[Message] = []
        self._of_guests = 0
        self._full = False

    def take(self, msg: Message) -> bool:
        """Queue or refuse a message for the suspended module. False if its topic is still served."""
        resumption = self._ctx.resumption
        if resumption is None or not resumption.owns(msg.topic):
            return False
        if msg.type == m.REQUEST and not msg.noresponse and msg.topic not in resumption.hellos:
            self._ctx.respond_error(msg, errno.ENOSYS, "No service matching " + msg.topic + " is registered")
        elif self._has_room(msg):
            self._queue.append(msg)
        elif not self._full:
            self._full = True
            text = f"{len(self._queue)} messages wait until {self._ctx.name} is loaded again: further ones are dropped"
            self._ctx.log(logging.ERROR, text)
        return True

    def _has_room(self, msg: Message) -> bool:
        """Count the message. True if the queue has room for it.

        Guests have their own limit, so they cannot cause the owner's messages to be dropped.
        """
        if not msg.rolemask & m.ROLE_OWNER:
            self._of_guests += 1
            if self._of_guests > _MOST_OF_GUESTS:
                return False
        return len(self._queue) < _MOST

    def resume(self, args: list[str]) -> None:
        """Resume the module and deliver the queue. If `resume` raises, the module stays suspended."""
        assert self._ctx.resumption is not None
        self._ctx.resumption.resume(args)
        self.deliver()

    def deliver(self) -> None:
        """End the suspension and deliver the queued messages."""
        self._ctx.suspended = None
        for msg in self._queue:
            self._ctx.send(msg)
