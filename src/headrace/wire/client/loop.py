"""The handle of `loop://`, for tests without a broker: it receives the messages that it sends."""

from __future__ import annotations

import errno
import os
import select

from headrace.formats.spec.message import ROLE_NONE, ROLE_OWNER, USERID_UNKNOWN, Message, frame
from headrace.formats.spec.stdlib_parts import socket
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

LOOP_URI = "loop://"


class LoopHandle(Handle):
    """A handle that receives its own requests: get them with `unclaimed`, and respond with `send`.

    It receives every event, with or without a subscription. A message without a sender gets the id of this process's
    user, and the owner's role.
    """

    __slots__ = ("_entrance",)

    def __init__(self) -> None:
        ours, self._entrance = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        super().__init__(LOOP_URI, ours)

    def close(self) -> None:
        super().close()
        self._entrance.close()

    def send(self, msg: Message) -> None:
        if self._user is not None or msg.userid == USERID_UNKNOWN:
            msg.userid = os.getuid() if self._user is None else self._user
        if self._role is not None or msg.rolemask == ROLE_NONE:
            msg.rolemask = ROLE_OWNER if self._role is None else self._role
        unsent = memoryview(frame(msg))
        while unsent:
            try:
                unsent = unsent[self._entrance.send(unsent, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                self.pump(0)

    def pump(self, timeout: Optional[float] = None) -> bool:
        """Read sent messages.

        Raises OSError(EDEADLK) if there is no message and no timeout: this handle is the only sender, so the wait would
        never end.
        """
        if timeout is None:
            poller = select.poll()
            poller.register(self._sock, select.POLLIN)
            if not poller.poll(0):
                raise OSError(errno.EDEADLK, f"{LOOP_URI}: nothing was sent that could still arrive")
        return super().pump(timeout)

    def subscribe(self, topic: str) -> None:
        """Does nothing: the handle receives all events."""

    def unsubscribe(self, topic: str) -> None:
        """Does nothing: the handle receives all events."""
