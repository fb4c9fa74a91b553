"""Packages with what brokers and their agents need of them: each would pay for the rest in time and memory.

The imports of a broker take 61 ms of CPU time instead of 78 so. What is left out of each is optional for it: where it
cannot be imported the package goes without, and so for a moment it cannot. That is TLS of asyncio (9 ms), and of
msgspec (8 ms) the types of typing_extensions and of packages whose values no message has. Packages threading and
logging would also do something after each fork: a process that forks while it has one thread finds their locks free.
Modules that asyncio, zmq and traceback use in a few of their functions are imported when one of these is called (9 ms).
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


class _Deferred(types.ModuleType):
    """Stands for a module until somebody asks it for something that is not among `known`: that comes from the module
    itself, which is imported then."""

    def __init__(self, name: str, known: dict[str, object]) -> None:
        super().__init__(name)
        vars(self).update(known)

    def __getattr__(self, attribute: str) -> object:
        name = self.__name__
        if sys.modules.get(name) is self:
            del sys.modules[name]
        return getattr(importlib.import_module(name), attribute)


@contextlib.contextmanager
def _deferred(*names: str, **known: dict[str, object]) -> Iterator[None]:
    """Who imports one of these modules meanwhile has it later, when it is used; whoever imports it afterwards has it at
    once. `known` are attributes that are read during the import."""
    made = {name: _Deferred(name, known.get(name, {})) for name in (*names, *known) if name not in sys.modules}
    sys.modules.update(made)
    try:
        yield
    finally:
        for name, module in made.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


def load_small() -> None:
    """Import what agents need, too: msgspec and traceback."""
    if "traceback" not in sys.modules:
        with _deferred("linecache", "textwrap"):
            importlib.import_module("traceback")
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
        # Asyncio looks into functions and sources when it tells of them; subprocess asks for the locale to make text.
        with _without("ssl"), _deferred("inspect", "linecache", "locale"):
            for name in ("logging", "asyncio"):
                importlib.import_module(name)
    finally:
        os.register_at_fork = register


def load_zmq() -> None:
    """Import zmq without what it serializes Python objects with, chooses ports by and tells interpreters by."""
    if "zmq" in sys.modules:
        return
    read: dict[str, dict[str, object]] = {
        "pickle": {"DEFAULT_PROTOCOL": 4},
        "platform": {"python_implementation": lambda: "CPython"},
    }
    with _deferred("json", "random", **read):
        importlib.import_module("zmq")


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
