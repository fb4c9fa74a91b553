"""The state of a module that outlives its removal, beside what is in a statedir.

Data stays in the broker's memory (`ModuleHost.kept`), or in a file of the run directory for a module with a process of
its own. A module whose partners must not notice its reload is suspended instead: the job manager would otherwise lose
the open requests of its watchers, and those that it has with the exec service. While it is suspended, requests to it
are refused, and responses to its own requests are queued; it sends none, so their number is bounded.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.spec import message as m
from headrace.spec.message import Message

if TYPE_CHECKING:
    from headrace.broker.attrs import AttrTable
    from headrace.broker.module.context import ModuleContext


class Left(Protocol):
    """What a module leaves in `kept`. `save` writes it to the file that the module reads in a process of its own."""

    def save(self, path: str) -> None: ...


def data_path(attrs: AttrTable, name: str, apart: bool) -> str:
    """The path of a module's database; "" for none, if the module can leave its data in `kept`."""
    statedir = attrs.get("statedir", "")
    if statedir:
        return os.path.join(statedir, f"{name}.sqlite")
    # A run directory that the user made may have files of another broker: the pid tells them apart.
    path = os.path.join(attrs.get("rundir", ""), f"{name}-{attrs.get('broker.pid', '')}.sqlite")
    return path if apart or os.path.exists(path) else ""


def forget_data(attrs: AttrTable) -> None:
    """Remove the databases that `data_path` has put into the run directory, which may outlive the broker."""
    ending = f"-{attrs.get('broker.pid', '')}.sqlite"
    folder = attrs.get("rundir", "")
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.endswith(ending):
            os.unlink(os.path.join(folder, name))


class Resumption(NamedTuple):
    """How a module is resumed: `resume(args)` is called in place of another load.

    `holds(topic)` tells which messages belong to what is suspended; other topics of the module are served all the time.
    Requests among them are refused, except for `hellos`, by which partners that are loaded meanwhile register.
    """

    resume: Callable[[list[str]], None]
    holds: Callable[[str], bool]
    hellos: frozenset[str] = frozenset()


class SuspendedModule:
    """A removed module, and the messages that were queued for it."""

    def __init__(self, ctx: ModuleContext) -> None:
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
