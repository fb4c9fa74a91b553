"""What of a module outlives its removal, beyond what it has in a statedir.

Data stays in the broker's memory (`ModuleHost.kept`), or in a file of the run directory once the module has a process
of its own. Where partners must not notice either, the module itself rests until it is loaded again. A job manager that
began anew would know nothing of what the exec service runs for it, nor of who waits for a job: so it stays what it is,
takes no requests, and reads the answers to its own when it is back. There are only so many of those: who asks nothing
new gets no more answers than it has waited for.
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
    """What a module leaves in `kept`; `save` puts it where the module looks when it is in a process of its own."""

    def save(self, path: str) -> None: ...


def data_path(attrs: AttrTable, name: str, apart: bool) -> str:
    """The database of a module; "" if it has none, because it can leave its data in `kept`."""
    statedir = attrs.get("statedir", "")
    if statedir:
        return os.path.join(statedir, f"{name}.sqlite")
    # A run directory that somebody made may have been another broker's.
    path = os.path.join(attrs.get("rundir", ""), f"{name}-{attrs.get('broker.pid', '')}.sqlite")
    return path if apart or os.path.exists(path) else ""


def forget_data(attrs: AttrTable) -> None:
    """Remove what data_path() named for lack of a statedir: a run directory that was there before us stays."""
    ending = f"-{attrs.get('broker.pid', '')}.sqlite"
    folder = attrs.get("rundir", "")
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.endswith(ending):
            os.unlink(os.path.join(folder, name))


class Resumption(NamedTuple):
    """How a module comes back: `resume(args)` instead of another load, and `holds(topic)`, which messages wait for
    that. What a module serves besides it goes on serving. A request is refused, so that nobody waits for he knows not
    what, but for `hellos`: with these a partner that was loaded meanwhile begins."""

    resume: Callable[[list[str]], None]
    holds: Callable[[str], bool]
    hellos: frozenset[str] = frozenset()


class SuspendedModule:
    """A module that is removed, and what has come for it meanwhile."""

    def __init__(self, ctx: ModuleContext) -> None:
        self._ctx = ctx
        self._mail: list[Message] = []

    def take(self, msg: Message) -> bool:
        """Whether `msg` was kept, or refused, in the module's stead."""
        returns = self._ctx.returns
        if returns is None or not returns.holds(msg.topic):
            return False
        if msg.type == m.REQUEST and not msg.noresponse and msg.topic not in returns.hellos:
            self._ctx.respond_error(msg, errno.ENOSYS, "No service matching " + msg.topic + " is registered")
        else:
            self._mail.append(msg)
        return True

    def end(self, args: list[str]) -> None:
        """The module is back, and reads what has come. What it raises leaves it at rest."""
        assert self._ctx.returns is not None
        self._ctx.returns.resume(args)
        self.read()

    def read(self) -> None:
        """Have the module read what has come."""
        self._ctx.suspended = None
        for msg in self._mail:
            self._ctx.send(msg)
