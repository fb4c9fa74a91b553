"""`-o signal`: sends a signal to tasks some time before the time limit of their job (flux-shell(1)).

If less than that time remains when the job starts, or when its limit is changed, the signal is sent at once.
"""

from __future__ import annotations

import signal
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.formats.spec import duration
from headrace.formats.spec.jobspec_build import parse_signal

# Seconds before the limit, if the option has no time.
_BEFORE = 60.0


class SignalOption(NamedTuple):
    """Signal number `signum`, `before` seconds ahead of the time limit."""

    signum: int
    before: float

    @property
    def name(self) -> str:
        try:
            return signal.Signals(self.signum).name
        except ValueError:
            return f"signal {self.signum}"


def parse(option: Any) -> SignalOption | None:
    """Parse the shell option. None if it is not set, 0, or its time is 0. Raises ValueError.

    The option is 1, `{"signum": N, "timeleft": seconds or duration}`, or a text in the format of `--signal`.
    """
    if option is None or option == 0:
        return None
    if isinstance(option, str):
        option = parse_signal(option)
    elif isinstance(option, int):
        option = {}
    if not isinstance(option, dict):
        raise ValueError(f"signal: write SIGNAL@TIME, not {option!r}")
    signum, before = option.get("signum", int(signal.SIGUSR1)), option.get("timeleft", _BEFORE)
    if not isinstance(signum, int) or not 0 < signum < signal.NSIG:
        raise ValueError(f"signal.signum={signum}: not a signal's number")
    try:
        seconds = duration.parse(before) if isinstance(before, str) else float(before)
    except (TypeError, ValueError):
        raise ValueError(f"signal.timeleft={before} is invalid: use seconds or a duration such as 10s") from None
    return SignalOption(signum, seconds) if seconds > 0 else None


class TimeLimitSignal:
    """Sends the signal to the tasks of one job.

    `after(seconds, fn)` calls fn once and cannot be cancelled.
    """

    def __init__(
        self,
        warn: SignalOption,
        after: Callable[[float, Callable[[], None]], None],
        log: Callable[[str], None],
        kill: Callable[[int], None],
    ) -> None:
        self._warn = warn
        self._after = after
        self._log = log
        self._kill = kill
        self._expiration: float | None = None
        # The expiration on the monotonic clock.
        self._end = 0.0
        self._short = False

    def set(self, expiration: float) -> None:
        """Set or change the expiration of the job in seconds since the epoch; 0 means none."""
        warn, self._expiration = self._warn, expiration
        if not expiration:
            self._log(f"job has no expiration, {warn.name} will not be sent")
            return
        remaining = expiration - time.time()
        self._end = time.monotonic() + remaining
        self._short = remaining < warn.before
        # Most jobs end long before their limit. The timer must not keep them in memory until then.
        own = weakref.ref(self)

        def fire() -> None:
            limit_signal = own()
            if limit_signal is not None and limit_signal._expiration == expiration:
                limit_signal._fire()

        self._after(max(0.0, remaining - warn.before), fire)

    def _fire(self) -> None:
        # As in Flux, "or less" is logged if the job has less time left than requested by the option.
        remaining = (
            f"{self._warn.before:.1f}s or less" if self._short else f"{max(0.0, self._end - time.monotonic()):.1f}s"
        )
        self._log(f"job will expire in {remaining}, sending {self._warn.name} to job")
        self._kill(self._warn.signum)

    def off(self) -> None:
        """Cancel the signal, since the job has ended."""
        self._expiration = None
