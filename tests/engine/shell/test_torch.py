"""`-o torch`: the variables of each task, the port that its shells agree about, what ends a job before they have."""

from __future__ import annotations

import json
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from agent_world import Job, World

from headrace.engine.shell.options import check
from headrace.engine.shell.torch import Rendezvous, wanted_port

NAMES = ["MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK"]
SHOW = [sys.executable, "-c", f"import json, os; print(json.dumps([os.environ.get(name) for name in {NAMES}]))"]


@pytest.fixture
def pair(tmp_path: Path) -> Any:
    world = World(2, str(tmp_path))
    yield world
    world.close()


def start(world: World, command: list[str], torch: Any = 1, ntasks: int = 4, **more: Any) -> Job:
    options = {"torch": torch, **more.pop("options", {})}
    return world.start(command, ntasks, nodes=[0, 1], options=options, input="/dev/null", **more)


def shown(job: Job, rank: int) -> list[Any]:
    found: list[Any] = json.loads(job.text(rank=rank))
    return found


@pytest.mark.parametrize(
    ("options", "port"),
    [({}, None), ({"torch": 1}, 0), ({"torch": True}, 0), ({"torch": 0}, None), ({"torch": 29500}, 29500)],
)
def test_the_option_is_a_port_or_none(options: dict[str, Any], port: int | None) -> None:
    assert wanted_port(options) == port
    assert check(options) == []


@pytest.mark.parametrize("value", ["x", -1, 65536, 1.5, [], {}])
def test_a_port_that_cannot_be_is_refused(value: Any, world: World) -> None:
    job = world.run(["true"], options={"torch": value})
    (raised,) = job.exceptions
    assert raised["note"].startswith(f"invalid torch={value}: must be a port from 2 to 65535")


def test_the_tasks_of_all_nodes_have_one_place_to_meet(pair: World) -> None:
    job = pair.finish(start(pair, SHOW))
    assert job.status == 0
    rows = [shown(job, rank) for rank in range(4)]
    (address, port) = rows[0][:2]
    assert address == "127.0.0.1" and 1024 <= int(port) < 65536
    assert rows == [
        [address, port, "0", "0", "4", "2", "0"],
        [address, port, "1", "1", "4", "2", "0"],
        [address, port, "2", "0", "4", "2", "1"],
        [address, port, "3", "1", "4", "2", "1"],
    ]
    assert job.event("shell.start")


def test_one_node_needs_nobody_to_agree_with(world: World) -> None:
    job = world.run(SHOW, 2, options={"torch": 29500})
    assert [shown(job, rank)[1:] for rank in (0, 1)] == [
        ["29500", "0", "0", "2", "2", "0"],
        ["29500", "1", "1", "2", "2", "0"],
    ]
    assert not job.barriers


def test_without_the_option_there_is_none_of_it(world: World) -> None:
    assert shown(world.run(SHOW), 0) == [None] * len(NAMES)


def test_what_the_user_set_is_kept(pair: World) -> None:
    job = pair.finish(
        start(pair, ["sh", "-c", "echo $MASTER_ADDR $PET_MASTER_ADDR $RANK"], env={"MASTER_ADDR": "here"})
    )
    assert sorted(job.text().splitlines()) == [f"here here {rank}" for rank in range(4)]


def test_a_job_of_such_a_task_has_its_own(world: World) -> None:
    outer = world.run(
        [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"], options={"torch": 1}
    )
    env = {**json.loads(outer.text()), "LOCAL_RANK": "5"}
    inner = world.run(SHOW, 2, options={"torch": 29500}, env=env)
    assert [shown(inner, rank)[1:3] for rank in (0, 1)] == [["29500", "0"], ["29500", "1"]]


def test_they_meet_where_task_0_is(pair: World) -> None:
    job = pair.finish(start(pair, SHOW, ntasks=2, options={"taskmap": "manual:[[1,1,1,1],[0,1,1,1]]"}))
    assert [shown(job, rank)[6] for rank in (0, 1)] == ["1", "0"]
    assert [key for key in job.barriers[0][1] if key == "torch.port"]
    assert "torch.port" not in job.barriers[0][0]


def test_pmi_has_its_barriers_after_that_of_the_option(pair: World) -> None:
    script = (
        "import os; fd = int(os.environ['PMI_FD']); init = b'cmd=init pmi_version=1 pmi_subversion=1\\n';"
        "os.write(fd, init + b'cmd=barrier_in\\n'); f = os.fdopen(fd); f.readline(); print(f.readline().strip())"
    )
    job = pair.finish(start(pair, [sys.executable, "-c", script], ntasks=2))
    assert job.status == 0, job.logs()
    assert [job.text(rank=rank) for rank in (0, 1)] == ["cmd=barrier_out rc=0\n"] * 2


def test_a_node_that_cannot_start_ends_the_job(pair: World) -> None:
    job = start(pair, ["true"], options={"taskmap": "no-such-scheme"})
    pair.pump(lambda: bool(job.exceptions))
    pair.kill(job, signal.SIGKILL)
    assert pair.finish(job).status != 0


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_job_whose_shells_have_not_agreed_can_be_ended(signum: int, pair: World) -> None:
    job = start(pair, ["echo", "ran"])
    # As with a third node that never enters the barrier.
    job.nnodes = 3
    pair.pump(lambda: len(job.barriers[0]) == 2)
    pair.kill(job, signum)
    job.nnodes = 2
    assert pair.finish(job).status == signum
    assert job.text() == ""


def test_a_shell_that_is_lost_before_they_have_agreed_ends_the_job(pair: World) -> None:
    job = start(pair, ["echo", "ran"])
    job.nnodes = 3
    pair.pump(lambda: len(job.barriers[0]) == 2)
    job.nnodes = 2
    lost = {"kind": "lost-shell", "signal": signal.SIGKILL}
    pair.send({"op": "peer", "id": job.id, "from": 1, "data": lost}, 0)
    pair.pump(lambda: bool(job.exceptions))
    assert job.exceptions[0]["note"] == "shell rank 1 (on host1): Killed: the tasks of other nodes wait for it to start"
    pair.kill(job, signal.SIGKILL)
    assert pair.finish(job).text() == ""


def test_other_machines_are_told_an_address_of_this_one() -> None:
    lead, other = Rendezvous(0, 0, True, "lead"), Rendezvous(0, 1, False, "other")
    pairs = {**lead.offer(), **other.offer(), "torch.network.1": "another machine"}
    env: dict[str, str] = {}
    other.met(pairs)
    other.add_to(env, rank=3, local=1, size=4, local_size=2, nnodes=2)
    assert env["MASTER_ADDR"] == pairs["torch.address"] != "127.0.0.1"
    port = int(env["MASTER_PORT"])
    with socket.socket() as taken, pytest.raises(OSError):
        taken.bind(("", port))
    lead.release()
    with socket.socket() as free:
        free.bind(("", port))


def test_words_are_no_templates_with_literal_args(world: World) -> None:
    assert world.run(["echo", "{{size}}", "{{taskid}}"], options={"literal-args": 1}).text() == "{{size}} {{taskid}}\n"
    assert world.run(["echo", "{{size}}"]).text() == "1\n"
