"""Packages with what brokers and their agents need of them: each would pay for the rest in time and memory.

The imports of a broker take 61 ms of CPU time instead of 78 so. What is left out of each is optional for it: where it
cannot be imported the package goes without, and so for a moment it cannot. That is TLS of asyncio (9 ms), and of
msgspec (8 ms) the types of typing_extensions and of packages whose values no message has. Packages threading and
logging would also do something after each fork: a process that forks while it has one thread finds their locks free.
A module file of a user's own gets it all back before it is loaded.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


def _forget_signals() -> None:
    from headrace.broker import signals

    signals.forget()


# What is to be done around each fork once somebody else may fork: by us, and by packages.
_hooks: list[dict[str, Callable[[], object]]] = [{"after_in_child": _forget_signals}]


@contextlib.contextmanager
def _without(*names: str) -> Iterator[None]:
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


# Modules that msgspec imports for value types and for JSON Schema, which no message of Headrace uses. Importing these
# modules takes longer than all the rest of msgspec.
_UNUSED_BY_MSGSPEC = {
    "uuid": ("UUID", "SafeUUID"),
    "decimal": ("Decimal",),
    "msgspec.inspect": (),
    "msgspec._json_schema": ("schema", "schema_components"),
}


@contextlib.contextmanager
def _stand_ins(wanted: dict[str, tuple[str, ...]]) -> Iterator[None]:
    """Have modules for a moment that hold nothing but empty classes; whoever imports them later gets the real ones."""
    made = {name: types.ModuleType(name) for name in wanted if name not in sys.modules}
    for name, module in made.items():
        for each in wanted[name]:
            setattr(module, each, type(each, (), {"unknown": None}))
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in made:
            del sys.modules[name]
            package, _, last = name.rpartition(".")
            if package in sys.modules:
                vars(sys.modules[package]).pop(last, None)


def load_small() -> None:
    """Import what agents need, too: msgspec."""
    if "msgspec" not in sys.modules:
        with _without("typing_extensions"), _stand_ins(_UNUSED_BY_MSGSPEC):
            importlib.import_module("msgspec")


def load_asyncio() -> None:
    """Import asyncio, unless somebody has it, or package ssl, already. What this process forks from then on it must
    fork with one thread only."""
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    register, os.register_at_fork = os.register_at_fork, lambda **hooks: _hooks.append(hooks)
    try:
        with _without("ssl"):
            for name in ("logging", "asyncio"):
                importlib.import_module(name)
    finally:
        os.register_at_fork = register


def end(loop: asyncio.AbstractEventLoop) -> None:
    """Close a loop that was stopped, as asyncio.run() does but for what nobody has: generators and signal handlers."""
    import asyncio
    import threading

    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
    if threading.active_count() > 1:
        loop.run_until_complete(loop.shutdown_default_executor())
    # What is closed is closed in the next turn.
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()


def complete() -> None:
    """Have all that was left out: who comes now may use it, and may fork."""
    import ssl

    while _hooks:
        os.register_at_fork(**_hooks.pop())
    lacking = [name for name, module in sys.modules.items() if name.startswith("asyncio.") and _lacks_ssl(module)]
    for name in lacking:
        sys.modules[name].ssl = ssl  # type: ignore[attr-defined]
    if "asyncio.sslproto" in lacking:
        importlib.reload(sys.modules["asyncio.sslproto"])


def _lacks_ssl(module: object) -> bool:
    return getattr(module, "ssl", module) is None
