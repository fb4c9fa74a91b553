"""Tasks and timers of a module, which are cancelled when the module is unloaded."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message


class Background:
    """The tasks and timers of one module.

    `refuse` responds to a request whose task was cancelled by the unload.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, log: Callable[[int, str], None], refuse: Callable[[Message], None]
    ) -> None:
        self._loop = loop
        self._log = log
        self._refuse = refuse
        self._tasks: set[asyncio.Task[Any]] = set()
        # Requests to which a task must respond, and has not responded yet.
        self.unanswered: set[Message] = set()
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._last_timer = 0

    def guard(self, fn: Callable[..., Any], *args: Any) -> None:
        """Call `fn` and run the coroutine that it may return. An exception is logged."""
        try:
            result = fn(*args)
        except Exception:
            self._log(logging.ERROR, f"{fn}: {traceback.format_exc()}")
            return
        if hasattr(result, "__await__"):
            self.spawn(result)

    def call_soon(self, fn: Callable[..., Any], *args: Any) -> None:
        """Like loop.call_soon, but an exception is logged."""
        self._loop.call_soon(self.guard, fn, *args)

    def call_later(self, seconds: float, fn: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        """Like loop.call_later, but an exception is logged, and unloading the module cancels the call."""
        number = self._last_timer = self._last_timer + 1
        # The callback gets the timer's number, not its handle: a reference cycle would keep `args` until the next
        # garbage collection.
        handle = self._loop.call_later(max(seconds, 0.0), self._fire, number, fn, args)
        if len(self._timers) > 256:
            self._timers = {number: timer for number, timer in self._timers.items() if not timer.cancelled()}
        self._timers[number] = handle
        return handle

    def _fire(self, number: int, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._timers.pop(number, None)
        self.guard(fn, *args)

    def spawn(self, coro: Any, requests: Iterable[Message] = ()) -> asyncio.Task[Any]:
        """Run `coro` in a task, which an unload cancels.

        The task must respond to `requests`. Those without a response when it is cancelled are refused.
        """
        task: asyncio.Task[Any] = self._loop.create_task(coro)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        asked = [msg for msg in requests if not msg.flags & m.FLAG_NORESPONSE]
        if asked:
            self.unanswered.update(asked)
            # A done callback, because a task that is cancelled before its first step gets no exception.
            task.add_done_callback(lambda task: self._refuse_unanswered(asked, task.cancelled()))
        return task

    def _refuse_unanswered(self, requests: list[Message], cancelled: bool) -> None:
        unanswered = self.unanswered.intersection(requests)
        self.unanswered -= unanswered
        if cancelled:
            for msg in unanswered:
                self._refuse(msg)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            trace = "".join(traceback.format_exception(task.exception()))
            self._log(logging.ERROR, f"task failed: {trace}")

    def cancel_all(self) -> None:
        """Cancel every timer, and every task except the current one."""
        for timer in self._timers.values():
            timer.cancel()
        for task in list(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()
