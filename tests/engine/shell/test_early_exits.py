"""Tasks that wait for one that has ended: their job ends at once and says whom they waited for."""

from __future__ import annotations

import signal
import stat
from pathlib import Path

import pytest
from agent_world import World

from headrace.formats.spec import jobspec_build

_INIT = 'echo "cmd=init pmi_version=1 pmi_subversion=1" >&3; read answer <&3;'
_BARRIER = "echo cmd=barrier_in >&3; read answer <&3;"


@pytest.mark.parametrize("nodes", [[0], [0, 1]], ids=["one-node", "two-nodes"])
@pytest.mark.parametrize("gone", [0, 1])
def test_a_task_that_ends_within_pmi_fails_those_that_wait_in_a_barrier(world: World, nodes: list[int], gone: int):
    script = f"{_INIT} [ $PMI_RANK = {gone} ] && kill -9 $$; {_BARRIER} echo over"
    job = world.shell(script, 2, nodes=nodes, options={"exit-timeout": "none"})
    assert job.status == 137 << 8
    note = f"task {gone} (host host{gone if len(nodes) > 1 else 0}) ended (Killed) in PMI, "
    assert [exc["note"] for exc in job.exceptions] == [note + "where others wait for it in a barrier"]
    assert job.text() == ""


def test_a_task_that_ends_without_pmi_fails_nobody(world: World) -> None:
    job = world.shell(f"[ $PMI_RANK = 0 ] && exit 3; {_INIT} exit 0", 2, nodes=[0, 1])
    assert (job.status, job.exceptions) == (3 << 8, [])


@pytest.mark.parametrize("how", ["kill -9 $$", "exit 0"])
def test_brokers_are_told_to_end_when_their_leader_is_gone(world: World, tmp_path: Path, how: str) -> None:
    broker = tmp_path / "flux"
    finalize = "echo cmd=finalize >&3; read answer <&3;"
    trap, lives = "trap 'echo told; exit 0' TERM;", "while :; do sleep .02; done"
    broker.write_text(f"#!/bin/sh\n{trap} {_INIT} {_BARRIER} {finalize} [ $PMI_RANK = 0 ] && {how}\n{lives}\n")
    broker.chmod(stat.S_IRWXU)
    spec = jobspec_build.from_nest_command(
        [], num_slots=3, num_nodes=2, environment={"PATH": f"{tmp_path}:/usr/bin:/bin"}, cwd="/tmp"
    )
    job = world.finish(world.start([], nodes=[0, 1], jobspec=spec))
    assert (job.status, job.text()) == ((128 + signal.SIGKILL) << 8 if "-9" in how else 0, "told\n")
