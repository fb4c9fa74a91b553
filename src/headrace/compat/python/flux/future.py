"""Futures: what an asynchronous call returns, fulfilled from a handle's connection."""

from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from headrace.client.handle import Rpc

if TYPE_CHECKING:
    from flux.core.handle import Flux


class Future:
    """The answer, or the stream of answers, of one call. `get()` waits for it; `then(cb)` has the reactor call `cb`."""

    def __init__(self, handle: Flux, call: Rpc) -> None:
        self._handle = handle
        self._call = call
        self._message: Any = None

    def get_flux(self) -> Flux:
        return self._handle

    def get_reactor(self) -> Any:
        return self._handle.reactor

    def incref(self) -> None:
        """Nothing: a future lives as long as somebody holds it."""

    def stop(self) -> None:
        """Call back no more."""
        self._call.then(lambda call: None)

    def _received(self) -> Any:
        if self._message is None:
            self._message = self._call.next_message()
        if self._message.errnum:
            raise OSError(self._message.errnum, self._message.text or _strerror(self._message.errnum))
        return self._message

    def get(self) -> Any:
        """The answer; raises OSError when the call failed."""
        return self._received().obj

    def is_ready(self) -> bool:
        if self._message is None:
            self._handle.handle.pump(0)
        return self._message is not None or bool(self._call.ready)

    def wait_for(self, timeout: float = -1.0) -> None:
        """Wait for an answer; TimeoutError after `timeout` seconds (negative: for ever)."""
        if self._message is None:
            self._message = self._call.next_message(None if timeout < 0 else timeout)

    def reset(self) -> None:
        """Take the next answer of a stream."""
        self._message = None

    def then(self, callback: Callable[..., Any], *args: Any, timeout: float = -1.0, **kwargs: Any) -> Future:
        """Call `callback(future, ...)` for every answer, from the reactor."""
        deadline: List[Any] = []

        def answered(call: Rpc) -> None:
            for timer in deadline:
                timer.stop()
            self._message = call.next_message()
            self._handle.guard(callback, self, *args, **kwargs) if not kwargs else self._handle.guard(
                lambda: callback(self, *args, **kwargs)
            )

        reactor = self._handle.reactor
        if timeout >= 0:

            def expired() -> None:
                self._handle.set_exception(TimeoutError(errno.ETIMEDOUT, "the future was not fulfilled in time"))
                self._handle.reactor_stop_error()

            deadline.append(reactor.add_timer(timeout, expired))
        self._call.then(answered)
        return self

    def cancel(self, stop: bool = False) -> None:
        """Ask the service to end a stream."""
        self._call.cancel()

    def error_string(self) -> Optional[str]:
        if self._message is not None and self._message.errnum:
            return str(self._message.text or _strerror(self._message.errnum))
        return None


def _strerror(number: int) -> str:
    import os

    return os.strerror(number)


class WaitAllFuture:
    """Several futures as one: fulfilled when all of them are."""

    def __init__(self, children: Optional[List[Future]] = None) -> None:
        self.children: Dict[str, Future] = {str(index): child for index, child in enumerate(children or [])}

    def push(self, child: Future, name: Optional[str] = None) -> None:
        self.children[name if name is not None else str(len(self.children))] = child

    def get(self) -> None:
        for child in self.children.values():
            child.wait_for()

    def wait_for(self, timeout: float = -1.0) -> None:
        end = time.monotonic() + timeout
        for child in self.children.values():
            child.wait_for(-1.0 if timeout < 0 else max(0.0, end - time.monotonic()))

    def then(self, callback: Callable[..., Any], *args: Any, timeout: float = -1.0, **kwargs: Any) -> WaitAllFuture:
        """Call `callback(future, ...)` from the reactor when all are fulfilled."""
        left = len(self.children)

        def one(_child: Any) -> None:
            nonlocal left
            left -= 1
            if not left:
                callback(self, *args, **kwargs)

        for child in self.children.values():
            child.then(one, timeout=timeout)
        return self


class FutureExt(Future):
    """A future that its owner fulfils: `init_cb(future, ...)` runs once somebody waits for it."""

    def __init__(self, init_cb: Callable[..., Any], *args: Any, flux_handle: Optional[Flux] = None) -> None:
        self._init: Optional[Callable[[], Any]] = lambda: init_cb(self, *args)
        self._results: List[Any] = []
        self._callbacks: List[Callable[[], Any]] = []
        if flux_handle is not None:
            self._handle = flux_handle

    def fulfill(self, result: Any = None) -> None:
        self._add((result, None))

    def fulfill_error(self, errnum: int, text: Optional[str] = None) -> None:
        self._add((None, OSError(errnum, text or _strerror(errnum))))

    def _add(self, entry: Any) -> None:
        self._results.append(entry)
        for callback in self._callbacks:
            self._handle.reactor.add_timer(0.0, callback)

    def _begin(self) -> None:
        init, self._init = self._init, None
        if init is not None:
            init()

    def is_ready(self) -> bool:
        return bool(self._results)

    def wait_for(self, timeout: float = -1.0) -> None:
        """Raises TimeoutError after `timeout` seconds (negative: wait for ever)."""
        self._begin()
        if self._results:
            return
        reactor = self._handle.reactor
        waiting = [True]

        def expired() -> None:
            waiting[0] = False
            reactor.stop()

        timer = reactor.add_timer(timeout, expired) if timeout >= 0 else None
        while not self._results and waiting[0]:
            reactor.step()
        if timer is not None:
            timer.stop()
        if not self._results:
            raise TimeoutError(errno.ETIMEDOUT, "the future was not fulfilled in time")

    def get(self) -> Any:
        """The result; raises OSError when it is an error."""
        self.wait_for()
        result, failure = self._results[0]
        if failure is not None:
            raise failure
        return result

    def reset(self) -> None:
        if self._results:
            del self._results[0]

    def error_string(self) -> Optional[str]:
        failure = self._results[0][1] if self._results else None
        return failure.strerror if failure is not None else None

    def then(self, callback: Callable[..., Any], *args: Any, timeout: float = -1.0, **kwargs: Any) -> Future:
        def fulfilled() -> None:
            self._handle.guard(lambda: callback(self, *args, **kwargs))

        self._callbacks.append(fulfilled)
        for _ in self._results:
            self._handle.reactor.add_timer(0.0, fulfilled)
        self._handle.reactor.add_timer(0.0, self._begin)
        return self

    def stop(self) -> None:
        self._callbacks.clear()
