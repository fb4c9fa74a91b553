"""Futures: the results of asynchronous calls, fulfilled from a handle's connection."""

from __future__ import annotations

import contextlib
import errno
import signal
import time
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Optional, TypeVar

from headrace.formats.spec.message import RESPONSE, Message
from headrace.wire.client.handle import Handle, Rpc

if TYPE_CHECKING:
    from flux.core.handle import Flux

F = TypeVar("F", bound="Future")
W = TypeVar("W", bound="WaitAllFuture")
E = TypeVar("E", bound="FutureExt")


def connection(flux_handle: Optional[Flux]) -> Handle:
    """The connection of a handle. Raises OSError EINVAL for None."""
    if flux_handle is None:
        raise OSError(errno.EINVAL, "a Flux handle is needed")
    return flux_handle.handle


@contextlib.contextmanager
def not_ignoring_interrupts(action: Any) -> Iterator[None]:
    """Set the handler of SIGINT to `action` in the block if SIGINT is ignored.

    Background processes of a shell without job control ignore it. An existing handler is not changed. In a thread other
    than the main thread, nothing is changed, because it cannot set signal handlers.
    """
    changed = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    if changed:
        try:
            signal.signal(signal.SIGINT, action)
        except ValueError:
            changed = False
    try:
        yield
    finally:
        if changed:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


class Future:
    """The response or stream of responses to a call: `get()` waits for it, `then(cb)` sets a callback."""

    def __init__(self, handle: Flux, call: Rpc) -> None:
        self._handle = handle
        self._call = call
        self._message: Any = None
        self._timer: Any = None
        self._timeout: Optional[Callable[[], Any]] = None

    def __enter__(self: F) -> F:
        return self

    def __exit__(self, *_exc: object) -> None:
        """Does nothing: a future lives as long as it is referenced."""

    def get_flux(self) -> Flux:
        return self._handle

    get_handle = get_flux
    # Flux's own class for remote calls has this attribute.
    flux_handle = property(get_flux)

    def get_reactor(self) -> Any:
        return self._handle.reactor

    def incref(self) -> None:
        """Does nothing: a future lives as long as it is referenced."""

    def stop(self) -> None:
        """Remove the callback."""
        self._stop_timer()
        self._call.abandon()

    def _received(self) -> Any:
        if self._message is None:
            with not_ignoring_interrupts(signal.SIG_DFL):
                self._message = self._call.next_message()
        if self._message.errnum:
            raise OSError(self._message.errnum, self._message.text or _strerror(self._message.errnum))
        return self._message

    def get(self) -> Any:
        """The response. Raises OSError if the call failed."""
        return self._received().obj

    def is_ready(self) -> bool:
        if self._message is None:
            self._handle.handle.pump(0)
        return self._message is not None or bool(self._call.ready)

    def wait_for(self: F, timeout: float = -1.0) -> F:
        """Wait for a response. Raises TimeoutError after `timeout` seconds (negative: no limit)."""
        if self._message is None:
            with not_ignoring_interrupts(signal.SIG_DFL):
                self._message = self._call.next_message(None if timeout < 0 else timeout)
        return self

    def reset(self) -> None:
        """Continue with the next response of a stream."""
        self._message = None
        if self._timeout is not None and not self._call.done:
            self._timeout()

    def then(self: F, callback: Callable[..., Any], *args: Any, timeout: float = -1.0, **kwargs: Any) -> F:
        """Register `callback(future, ...)`, which the reactor calls for every response.

        After an exception it is not called again. A response that does not arrive in `timeout` seconds (negative: no
        limit) is the error ETIMEDOUT. Raises OSError EEXIST if there is a callback already.
        """
        if self._call.has_callback:
            raise OSError(errno.EEXIST, "the future has a callback already")

        def answered(call: Rpc) -> None:
            self._stop_timer()
            self._message = call.next_message()
            if not self._handle.guard(lambda: callback(self, *args, **kwargs)):
                self.stop()

        reactor = self._handle.reactor
        if timeout >= 0:

            def expired() -> None:
                self._call.abandon()
                self._message = Message(RESPONSE, self._call.topic, aux1=errno.ETIMEDOUT)
                self._handle.guard(lambda: callback(self, *args, **kwargs))

            def start_timer() -> None:
                self._stop_timer()
                self._timer = reactor.add_timer(timeout, expired)

            self._timeout = start_timer
            start_timer()
        self._call.then(answered)
        return self

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()

    def cancel(self, stop: bool = False) -> None:
        """Ask the service to end a stream; with `stop`, the callback is not called any more."""
        self._call.cancel()
        if stop:
            self.stop()

    def error_string(self) -> Optional[str]:
        if self._message is not None and self._message.errnum:
            return str(self._message.text or _strerror(self._message.errnum))
        return None


def _strerror(number: int) -> str:
    import os

    return os.strerror(number)


class WaitAllFuture(Future):
    """Several futures as one, which is fulfilled when all of its `children` are."""

    def __init__(self, children: Optional[List[Any]] = None) -> None:
        self.children: List[Any] = [] if children is None else children

    def push(self, child: Future, name: Optional[str] = None) -> None:
        """Add a future; a `name` has no effect."""
        self.children.append(child)

    def get_flux(self) -> Flux:
        """The handle of the first child. Raises IndexError without one."""
        flux_handle: Flux = self.children[0].get_flux()
        return flux_handle

    def get_reactor(self) -> Any:
        return self.get_flux().reactor

    def is_ready(self) -> bool:
        return all([child.is_ready() for child in self.children])

    def get(self) -> None:
        self.wait_for()

    def wait_for(self: W, timeout: float = -1.0) -> W:
        """Wait for all children. Raises TimeoutError after `timeout` seconds (negative: no limit)."""
        end = time.monotonic() + timeout
        for child in self.children:
            child.wait_for(-1.0 if timeout < 0 else max(0.0, end - time.monotonic()))
        return self

    def reset(self) -> None:
        for child in self.children:
            child.reset()

    def stop(self) -> None:
        for child in self.children:
            child.stop()

    def then(self: W, callback: Callable[..., Any], *args: Any, timeout: float = -1.0, **kwargs: Any) -> W:
        """Register `callback(future, ...)`, which the reactor calls when all are fulfilled."""
        unfulfilled = len(self.children)

        def one(_child: Any) -> None:
            nonlocal unfulfilled
            unfulfilled -= 1
            if not unfulfilled:
                callback(self, *args, **kwargs)

        for child in self.children:
            child.then(one, timeout=timeout)
        return self

    def cancel(self, stop: bool = False) -> None:
        for child in self.children:
            child.cancel(stop)

    def error_string(self) -> Optional[str]:
        """The text of the first child's error."""
        return next((text for text in (child.error_string() for child in self.children) if text is not None), None)


class FutureExt(Future):
    """A future that its owner fulfils: `init_cb(future, ...)` is called with the first wait."""

    def __init__(self, init_cb: Callable[..., Any], *args: Any, flux_handle: Optional[Flux] = None) -> None:
        self._init: Optional[Callable[[], Any]] = lambda: init_cb(self, *args)
        self._message = None
        self._results: List[Any] = []
        self._callbacks: List[Callable[[], Any]] = []
        if flux_handle is not None:
            self._handle = flux_handle

    def fulfill(self, result: Any = None) -> None:
        self._add((result, None))

    def fulfill_error(self, errnum: int, errstr: Optional[str] = None) -> None:
        self._add((None, OSError(errnum, errstr or _strerror(errnum))))

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

    def wait_for(self: E, timeout: float = -1.0) -> E:
        """Wait until it is fulfilled. Raises TimeoutError after `timeout` seconds (negative: no limit)."""
        self._begin()
        if self._results:
            return self
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
        return self

    def get(self) -> Any:
        """The result. Raises OSError if it is an error."""
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

    def then(self: E, callback: Callable[..., Any], *args: Any, timeout: float = -1.0, **kwargs: Any) -> E:
        def fulfilled() -> None:
            self._handle.guard(lambda: callback(self, *args, **kwargs))

        self._callbacks.append(fulfilled)
        for _ in self._results:
            self._handle.reactor.add_timer(0.0, fulfilled)
        self._handle.reactor.add_timer(0.0, self._begin)
        return self

    def stop(self) -> None:
        self._callbacks.clear()
