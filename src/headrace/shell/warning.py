"""`-o signal`: the tasks get a signal some time before their job's time limit (flux-shell(1)).

A limit that is nearer than that time when the job starts, or when it is changed, warns at once.
"""

from __future__ import annotations

import signal
from typing import Any, NamedTuple

from ..spec import duration
from ..spec.jobspec_build import parse_signal

_BEFORE = 60.0


class Warn(NamedTuple):
    """`signum`, `before` seconds ahead of the end."""

    signum: int
    before: float

    @property
    def name(self) -> str:
        try:
            return signal.Signals(self.signum).name
        except ValueError:
            return f"signal {self.signum}"


def parse(option: Any) -> Warn | None:
    """The shell option: 1, `{"signum": N, "timeleft": seconds or duration}`, or text as `--signal` takes it; None when
    it is not set, 0, or leaves no time. Raises ValueError."""
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
    return Warn(signum, seconds) if seconds > 0 else None
