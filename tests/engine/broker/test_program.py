"""The initial program: how it is run, what it is told, and what is told of its end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.broker.program import Program

Run = Callable[..., None]


async def ended(broker: Any, command: list[str] | None, meddle: Callable[[Program], None] | None = None) -> Any:
    """(status, text) of a program that ran."""
    result: asyncio.Future[tuple[int, str]] = broker.loop.create_future()
    broker.attrs.set("local-uri", "local:///run/local-0")
    broker.env, broker.agent = dict(os.environ), None
    program = Program(broker, command, lambda status, text: result.set_result((status, text)))
    program.start()
    assert program.running
    if meddle is not None:
        meddle(program)
    outcome = await asyncio.wait_for(result, 60)
    assert not program.running
    return outcome


@pytest.mark.parametrize(
    ("command", "status", "text"),
    [
        (["true"], 0, r"rc2\.0: true Exited \(rc=0\) \d+\.\ds"),
        (["exit 7"], 7, r"rc2\.0: exit 7 Exited \(rc=7\) .*"),
        (["sh", "-c", "exit 3"], 3, r"rc2\.0: sh -c exit 3 Exited \(rc=3\) .*"),
        (["kill -TERM $$"], 143, r"rc2\.0: kill -TERM \$\$ Terminated \(rc=143\) .*"),
    ],
)
def test_its_status_is_told_as_a_shell_would(in_broker: Run, command: list[str], status: int, text: str) -> None:
    async def scenario(broker: Any) -> None:
        got = await ended(broker, command)
        assert got[0] == status
        assert re.fullmatch(text, got[1]), got[1]

    in_broker(scenario)


def test_a_script_is_run_whatever_its_path_means_to_a_shell(in_broker: Run, tmp_path: Path) -> None:
    script = tmp_path / "a b'\";$x{{id}}"
    script.write_text("#!/bin/sh\nexit 7\n")
    script.chmod(0o700)

    async def scenario(broker: Any) -> None:
        assert (await ended(broker, [str(script)]))[0] == 7

    in_broker(scenario)


def test_it_finds_the_instance_and_nothing_of_the_one_around_it(
    in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FLUX_JOB_ID", "PMI_RANK", "PMI_SPAWNED", "SLURM_NTASKS", "I_MPI_PMI_LIBRARY", "FLUX_PROXY_REMOTE"):
        monkeypatch.setenv(name, "of the enclosing instance")

    async def scenario(broker: Any) -> None:
        await ended(broker, [f"env > {tmp_path}/env"])
        lines = (tmp_path / "env").read_text().splitlines()
        assert "FLUX_URI=local:///run/local-0" in lines
        assert not [line for line in lines if "of the enclosing instance" in line]

    in_broker(scenario)


def test_to_stop_it_is_to_hang_up_on_all_that_it_started(in_broker: Run, tmp_path: Path) -> None:
    async def scenario(broker: Any) -> None:
        def stop(program: Program) -> None:
            def when_ready() -> None:
                if (tmp_path / "up").exists():
                    program.stop()
                else:
                    broker.loop.call_later(0.01, when_ready)

            when_ready()

        status, _text = await ended(broker, [f"sleep 1000 & touch {tmp_path}/up; wait"], stop)
        assert status == 128 + signal.SIGHUP

    in_broker(scenario)


def test_a_program_that_there_is_not_is_an_error_with_its_name(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        with pytest.raises(FileNotFoundError):
            await ended(broker, ["/no/such/program", "-x"])

    in_broker(scenario)


@pytest.mark.parametrize("jobid", ["", "f7"])
def test_a_program_is_told_which_job_its_instance_is(
    in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobid: str
) -> None:
    monkeypatch.setenv("FLUX_ENCLOSING_ID", "of an instance around us")

    async def scenario(broker: Any) -> None:
        broker.attrs.set("jobid", jobid)
        await ended(broker, [f"env > {tmp_path}/env"])
        told = [line for line in (tmp_path / "env").read_text().splitlines() if line.startswith("FLUX_ENCLOSING_ID")]
        assert told == ([f"FLUX_ENCLOSING_ID={jobid}"] if jobid else [])

    in_broker(scenario)
