"""A thread for work that may wait for the disk, so that a module's handlers never have to wait."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from headrace.engine.broker.answers import RpcError


class Background:
    """Runs functions one after another in a separate thread and passes their results to the event loop."""

    def __init__(self, call_soon: Callable[..., Any], name: str) -> None:
        self._call_soon = call_soon
        self._name = name
        self._closed = False
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)

    def submit(self, fn: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """Run `fn()` in the thread, then call `done(result, None)` or `done(None, error)` on the loop.

        After `close`, `fn` is not run, and the error is RpcError(ENOSYS).
        """
        if self._closed:
            self._call_soon(done, None, RpcError(errno.ENOSYS, f"{self._name} was unloaded"))
            return
        self._submit(fn, done)

    def _submit(self, fn: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        def hand_back(future: Future[Any]) -> None:
            error = future.exception()
            self._call_soon(done, None if error else future.result(), error)

        self._pool.submit(fn).add_done_callback(hand_back)

    async def close(self) -> None:
        """End the thread once all submitted functions have run and their `done` has been called."""
        self._closed = True
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._submit(lambda: None, lambda _result, _error: ended.set_result(None))
        await ended
        self._pool.shutdown(wait=True)
