"""The recorded conversations of a real broker's clients, sent to a broker of ours: the same answers, frame by frame.

All conversations are played to one instance in the order of their recording, because later ones speak of what earlier
ones did. What may differ stands in wire_differences.toml, by conversation and path, with the reason.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from instance import FLUX, clean_env
from wire_recording import WIRE, Recording
from wire_replay import Difference, Replay

from headrace.engine.broker import discovery
from headrace.wire.client.handle import Handle

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RULES = tomllib.loads((Path(__file__).parent / "wire_differences.toml").read_text())
RECORDINGS = {path.stem[:2]: Recording(path) for path in sorted(WIRE.glob("*.jsonl"))}
# The one job that is cancelled in a recording but whose submission was not recorded.
CANCELLED = 65129152512
# Jobs that still wait or run when their conversation is over, by the conversation that ends them, if any does.
HELD_FROM, HELD_TO = "20", "22"
STAYS = 195102244864

# The limit of processes of the recorded jobs.
PROCESSES = 96365

pytestmark = [pytest.mark.slow]


@contextmanager
def started() -> Iterator[tuple[str, str, dict[str, str]]]:
    """An instance like the recorded one, three brokers of two cores: its socket, a folder, its environment."""
    if os.getuid():
        pytest.skip("the recorded user is root")
    cores = discovery.discover().core_cpus
    if len(cores) < 2:
        pytest.skip("the recorded nodes have two cores, this machine has one")
    cpus = {cpu for core in cores[:2] for cpu in core}
    folder = tempfile.mkdtemp(prefix="hr-", dir="/tmp")
    env = clean_env(TMPDIR=folder, PATH=f"{slow_programs(folder)}:{Path(FLUX).parent}:{os.environ['PATH']}")
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        instance = subprocess.Popen(
            [FLUX, "start", "--test-size=3", "sh", "-c", "env; echo .; exec sleep 1000"],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
    finally:
        os.sched_setaffinity(0, everywhere)
    try:
        assert instance.stdout is not None
        lines = iter(instance.stdout.readline, ".\n")
        inside = dict(line.rstrip("\n").split("=", 1) for line in lines if re.match(r"\w+=", line))
        home = os.path.join(folder, "home")
        os.mkdir(home)
        yield inside["FLUX_URI"].removeprefix("local://"), home, inside
    finally:
        instance.terminate()
        instance.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def slow_programs(folder: str) -> str:
    """A folder of programs that take a while, as on the recorded machine, where input came before their end."""
    path = Path(folder) / "bin"
    path.mkdir()
    for name in ("hostname", "sh", "cat"):
        program = path / name
        # The tasks of a job end one after another, by rank.
        wait = "sleep 0.$((2 + ${FLUX_TASK_RANK:-0}))"
        program.write_text(f'#!/bin/sh\n{wait}\nexec {shutil.which(name)} "$@"\n')
        program.chmod(0o755)
    return str(path)


def play_all() -> dict[str, list[Difference]]:
    """Play every conversation; the differences by conversation."""
    found = {}
    with started() as (path, home, env), Handle(f"local://{path}") as handle:
        replay = Replay(path, home, env)
        most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        if 0 <= most < PROCESSES:
            # A job would log that it cannot have as many.
            replay.know(PROCESSES, most)
        for number, recording in RECORDINGS.items():
            if number == "16":
                replay.know(CANCELLED, submit_and_start(replay))
            found[number] = replay.play(recording)
            if not HELD_FROM <= number < HELD_TO:
                settle(handle, replay.ids.get(STAYS))
        handle.rpc("job-manager.raise", {"id": replay.ids[STAYS], "type": "cancel", "severity": 0}).get()
        settle(handle, None)
    return found


def submit_and_start(replay: Replay) -> int:
    """Submit a job that runs until it is cancelled, as the recorded session did; its id when it runs."""
    env = {**replay.environment, "PWD": replay.home}
    text = f"cd {replay.home}; id=$({FLUX} submit sleep 100); {FLUX} job wait-event -q $id start; {FLUX} job id $id"
    done = subprocess.run(["sh", "-c", text], env=env, capture_output=True, text=True, check=True, timeout=60)
    return int(done.stdout)


def settle(handle: Handle, stays: int | None) -> None:
    """Wait until no job but `stays` is active, so that the next conversation finds what the recorded one found."""
    request = {"max_entries": 0, "attrs": ["state"], "since": 0.0, "constraint": {"states": [63]}}
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        active = [job["id"] for answer in handle.stream("job-list.list", request) for job in answer["jobs"]]
        if active in ([], [stays]):
            return
        time.sleep(0.02)
    raise AssertionError(f"jobs did not end: {active}")


@pytest.fixture(scope="module")
def played() -> dict[str, list[Difference]]:
    return play_all()


def pattern(rule: dict) -> re.Pattern[str]:
    """A rule's path: `[*]` stands for any index, `*` for any name or part of one, `**` for anything."""
    signs = {r"\[\*\]": r"\[\d+\]", r"\*\*": ".*", r"\*": r"[^.\[]*"}
    text = re.escape(rule["path"])
    return re.compile(re.sub("|".join(map(re.escape, signs)), lambda match: signs[match.group()], text))


def allows(rule: dict, difference: Difference) -> bool:
    if rule.get("kind", "value") != difference.kind or rule.get("ours", difference.ours) != difference.ours:
        return False
    return pattern(rule).fullmatch(difference.where) is not None


MASKS = RULES["mask"]
EXCEPTIONS = [(number, rule) for rule in RULES["differs"] for number in rule["conversations"]]


@pytest.mark.parametrize("number", RECORDINGS)
def test_broker_answers_as_recorded(number, played):
    rules = MASKS + [rule for other, rule in EXCEPTIONS if other == number]
    left = [str(found) for found in played[number] if not any(allows(rule, found) for rule in rules)]
    assert left == []


@pytest.mark.parametrize("rule", MASKS, ids=lambda rule: rule["path"])
def test_mask_is_needed(rule, played):
    assert any(allows(rule, found) for differences in played.values() for found in differences)


@pytest.mark.parametrize(
    ("number", "rule"), EXCEPTIONS, ids=lambda value: value if isinstance(value, str) else value["path"]
)
def test_listed_difference_occurs(number, rule, played):
    assert any(allows(rule, found) for found in played[number])
