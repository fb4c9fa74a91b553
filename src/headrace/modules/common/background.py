"""One thread for work that may wait for the disk, so that a module's handlers never do."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Background:
    """Runs functions one after another in a thread of its own and hands results back to the loop."""

    def __init__(self, call_soon: Callable[..., Any], name: str) -> None:
        self._call_soon = call_soon
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)

    def submit(self, fn: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """Run `fn()`; then `done(result, None)` or `done(None, error)` is called on the loop."""

        def hand_back(future: Future[Any]) -> None:
            error = future.exception()
            self._call_soon(done, None if error else future.result(), error)

        self._pool.submit(fn).add_done_callback(hand_back)

    def close(self) -> None:
        """Wait for the submitted functions and end the thread."""
        self._pool.shutdown(wait=True)
