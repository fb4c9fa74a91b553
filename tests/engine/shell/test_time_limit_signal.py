"""`-o signal`: what may be asked for, and tasks that are warned."""

from __future__ import annotations

import re
import signal
import time
import weakref
from typing import Any

import pytest
from agent_world import Job, World

from headrace.engine.shell.time_limit_signal import SignalOption, TimeLimitSignal, parse


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        (None, None),
        (0, None),
        (1, SignalOption(10, 60.0)),
        ({}, SignalOption(10, 60.0)),
        ({"signum": 12}, SignalOption(12, 60.0)),
        ({"timeleft": 0}, None),
        ({"timeleft": "2m"}, SignalOption(10, 120.0)),
        ({"signum": 15, "timeleft": 0.3}, SignalOption(15, 0.3)),
        ("USR2@0.3", SignalOption(12, 0.3)),
        ("@5m", SignalOption(10, 300.0)),
    ],
)
def test_every_form_of_the_option_is_understood(option: Any, wanted: SignalOption | None) -> None:
    assert parse(option) == wanted


@pytest.mark.parametrize("option", ["USR9@1s", "USR1@soon", {"signum": 0}, {"signum": "USR1"}, {"timeleft": []}, [10]])
def test_what_makes_no_sense_is_refused(option: Any) -> None:
    with pytest.raises(ValueError, match="signal"):
        parse(option)


def expiring(world: World, option: Any, seconds: float) -> Job:
    """A job that heeds USR2, and ends in `seconds` from when it does."""
    script = "trap 'exit 5' USR2; echo up; while :; do sleep .02; done"
    job = world.start(["sh", "-c", script], options={"signal": option}, expiration=time.time() + 1000)
    world.pump(lambda: job.text() == "up\n")
    world.send({"op": "expiration", "id": job.id, "expiration": time.time() + seconds})
    return job


def test_a_job_that_is_about_to_expire_is_warned(world: World) -> None:
    job = expiring(world, {"signum": int(signal.SIGUSR2), "timeleft": 100}, 100.3)
    world.finish(job)
    assert job.status == 5 << 8
    # On a busy machine the limit_signal is late, and says how long is left by then.
    [line] = job.logs()
    told = re.fullmatch(r"job will expire in ([\d.]+)s, sending SIGUSR2 to job", line)
    assert told is not None and 90 < float(told[1]) <= 100


def test_a_job_with_less_time_than_the_warning_asks_for_is_warned_at_once(world: World) -> None:
    job = world.finish(expiring(world, "USR2@200s", 100.0))
    assert job.logs() == ["job will expire in 200.0s or less, sending SIGUSR2 to job"]


def test_a_warning_as_text_comes_when_it_says(world: World) -> None:
    begin = time.time()
    assert world.finish(expiring(world, "USR2@100s", 100.3)).status == 5 << 8
    assert time.time() >= begin + 0.3


def test_a_job_without_a_limit_is_told_that_no_warning_will_come(world: World) -> None:
    job = world.shell("true", options={"signal": 1})
    assert job.logs() == ["job has no expiration, SIGUSR1 will not be sent"]


def test_a_broken_warning_fails_the_job(world: World) -> None:
    job = world.shell("true", options={"signal": {"timeleft": "soon"}}, expiration=time.time() + 100)
    assert job.status == 1 << 8
    assert job.exceptions[0]["note"] == "signal.timeleft=soon is invalid: use seconds or a duration such as 10s"


def test_a_longer_time_limit_postpones_the_warning(world: World) -> None:
    option = {"signal": {"signum": int(signal.SIGUSR2), "timeleft": 100}}
    job = world.start(["sh", "-c", "trap 'exit 5' USR2; sleep .5"], options=option, expiration=time.time() + 100.2)
    world.send({"op": "expiration", "id": job.id, "expiration": time.time() + 1000})
    assert world.finish(job).status == 0


def test_only_the_last_end_that_was_set_warns_and_none_after_the_job() -> None:
    timers: list[Any] = []
    killed: list[int] = []
    told: list[str] = []
    limit_signal = TimeLimitSignal(SignalOption(12, 5.0), lambda _, fn: timers.append(fn), told.append, killed.append)
    limit_signal.set(time.time() + 10)
    limit_signal.set(time.time() + 20)
    timers[0]()
    assert not killed
    timers[1]()
    assert killed == [12]
    assert told[0].startswith("job will expire in ")
    limit_signal.set(time.time() + 30)
    limit_signal.off()
    timers[2]()
    assert killed == [12]


def test_nothing_of_a_job_that_is_over_stays_until_its_limit() -> None:
    timers: list[Any] = []
    limit_signal = TimeLimitSignal(
        SignalOption(10, 1.0), lambda _seconds, fn: timers.append(fn), lambda _text: None, lambda _signum: None
    )
    limit_signal.set(time.time() + 3600)
    kept = weakref.ref(limit_signal)
    del limit_signal
    assert kept() is None
    timers[0]()
