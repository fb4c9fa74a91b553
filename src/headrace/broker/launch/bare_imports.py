"""Imports of asyncio, msgspec, traceback and zmq for brokers and agents, without the modules that they do not use.

There are two ways to leave out a module while a package is imported. `_without` makes the import of an optional module
fail: ssl for asyncio, typing_extensions for msgspec. `_deferred` puts a module there that imports the real one with its
first use.

Without `_without`, a broker's imports take 30 % more CPU time, without `_deferred` 27 % more. The fork hooks of
threading and logging are held back, too: a process that forks while it has one thread finds their locks free.
`complete` imports everything left out, before a user's own module is loaded.
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


# The fork hooks held back by load_asyncio, which `complete` registers: those of packages, and one of the broker's.
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


class _Deferred(types.ModuleType):
    """A module in place of another, with its attributes `known`; any other attribute imports the real module and is
    read from there.
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
    """Inside the block, imports of these modules get a _Deferred; a later import gets the real module. `known` has, by
    module, the attributes that are read during the import.
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
    """Import msgspec and traceback, which agents need, too."""
    with _without("typing_extensions"), _deferred("linecache", "textwrap"):
        for name in ("traceback", "msgspec"):
            importlib.import_module(name)


def load_asyncio() -> None:
    """Import asyncio, unless it or package ssl is imported already. After this, the process may fork only while it has
    one thread, until `complete`.
    """
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    register, os.register_at_fork = os.register_at_fork, lambda **hooks: _hooks.append(hooks)
    try:
        # asyncio needs inspect and linecache only for debug output, and subprocess needs locale only in text mode.
        with _without("ssl"), _deferred("inspect", "linecache", "locale"):
            for name in ("logging", "asyncio"):
                importlib.import_module(name)
    finally:
        os.register_at_fork = register


def load_zmq() -> None:
    """Import zmq without modules of some of its functions: pickled messages, random ports."""
    if "zmq" in sys.modules:
        return
    with _deferred("json", "random", pickle={"DEFAULT_PROTOCOL": 4}):
        importlib.import_module("zmq")


def end(loop: asyncio.AbstractEventLoop) -> None:
    """Close a stopped loop as asyncio.run() does, except for asynchronous generators, which brokers do not have."""
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
    """Import everything that was left out and register the fork hooks, for modules that may use both."""
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
