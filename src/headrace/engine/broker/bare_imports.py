"""Imports of asyncio, msgspec, traceback and zmq without modules that brokers and agents do not use.

There are three ways to skip a module while a package is imported. `_without` makes the import of an optional module
fail: ssl for asyncio, typing_extensions for msgspec. `_stand_ins` puts an empty module in the place of one whose
classes msgspec names but no message uses. `_deferred` puts a module there that imports the real one at its first use. A
broker's imports take 61 ms of CPU time instead of 78. In addition, the fork hooks of threading and logging are not
registered: in a process with one thread, their locks are free at a fork. `complete` imports everything that was
skipped, before a user's own module is loaded.
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
    from headrace.engine.broker import signals

    signals.forget()


# Fork hooks that `complete` registers: those of packages that load_asyncio held back, and one of the broker's.
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


# Modules that msgspec imports for value types and for JSON Schema, with the classes that it names. No message of
# Headrace uses them, and they take longer to import than all the rest of msgspec.
_UNUSED_BY_MSGSPEC = {
    "uuid": ("UUID", "SafeUUID"),
    "decimal": ("Decimal",),
    "msgspec.inspect": (),
    "msgspec._json_schema": ("schema", "schema_components"),
}


@contextlib.contextmanager
def _stand_ins(wanted: dict[str, tuple[str, ...]]) -> Iterator[None]:
    """Replace modules with modules of empty classes inside the block.

    A later import gets the real modules.
    """
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
    """A stand-in module with the attributes `known`.

    A read of any other attribute imports the real module, and returns that module's attribute.
    """

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
    """Import these modules as _Deferred inside the block. A later import gets the real module.

    `known` has, by module, the attributes that are read during the import.
    """
    made = {name: _Deferred(name, known.get(name, {})) for name in (*names, *known) if name not in sys.modules}
    sys.modules.update(made)
    try:
        yield
    finally:
        for name, module in made.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


def load_small() -> None:
    """Import msgspec and traceback, which agents also need."""
    if "traceback" not in sys.modules:
        with _deferred("linecache", "textwrap"):
            importlib.import_module("traceback")
    if "msgspec" not in sys.modules:
        with _without("typing_extensions"), _stand_ins(_UNUSED_BY_MSGSPEC):
            importlib.import_module("msgspec")


def load_asyncio() -> None:
    """Import asyncio, unless it or package ssl is imported already.

    After this and until `complete`, the process may fork only while it has one thread.
    """
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    register, os.register_at_fork = os.register_at_fork, lambda **hooks: _hooks.append(hooks)
    try:
        # asyncio needs inspect and linecache only for debug output, sslproto and staggered only for its own network
        # connections, and subprocess needs locale only in text mode.
        unused = ("inspect", "linecache", "locale", "asyncio.sslproto", "asyncio.staggered")
        with _without("ssl"), _deferred(*unused):
            for name in ("logging", "asyncio"):
                importlib.import_module(name)
    finally:
        os.register_at_fork = register


def load_zmq() -> None:
    """Import zmq without the modules for pickled messages, random ports and platform names."""
    if "zmq" in sys.modules:
        return
    read: dict[str, dict[str, object]] = {
        "pickle": {"DEFAULT_PROTOCOL": 4},
        "platform": {"python_implementation": lambda: "CPython"},
    }
    with _deferred("json", "random", **read):
        importlib.import_module("zmq")


def end(loop: asyncio.AbstractEventLoop) -> None:
    """Close a stopped loop as asyncio.run() does.

    Asynchronous generators are not closed, since brokers have none.
    """
    import asyncio
    import threading

    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
    if threading.active_count() > 1:
        loop.run_until_complete(loop.shutdown_default_executor())
    # Transports are closed in the turn after their close().
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()


def complete() -> None:
    """Import everything that was skipped and register the fork hooks, for modules that may need them."""
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
