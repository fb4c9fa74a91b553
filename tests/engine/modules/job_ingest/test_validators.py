"""A site's validators in their process: what they accept, refuse, and do to themselves."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs_world import World, jobspec

from headrace.engine.modules.job_ingest import validators
from waiting import until_in_loop

Run = Callable[..., None]
FILE = """
import os, sys, time
from flux.job.validator import ValidatorPlugin

class Validator(ValidatorPlugin):
    def __init__(self, parser):
        parser.add_argument("--most", type=int, default=100)

    def configure(self, args):
        self.most = args.most

    def validate(self, job):
        print("a validator may print")
        word = job.jobspec["tasks"][0]["command"][0]
        if word == "pair":
            return (38, f"{job.userid} {job.urgency} {job.flags}")
        if word == "raise":
            raise ValueError("not this one")
        if word == "exit":
            sys.exit(1)
        if word == "bug":
            return {}["missing"]
        if word == "hang":
            time.sleep(1000)
        if word == "wrong":
            return "wrong"
        if word == "pid":
            return (1, str(os.getpid()))
        if len(job.jobspec["tasks"][0]["command"]) > self.most:
            raise ValueError(f"more than {self.most} words")
"""
DIED = (errno.EPROTO, "Unrecoverable error: worker unexpectedly exited")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "site.py"
    path.write_text(FILE)
    return str(path)


def config(*plugins: str, **more: Any) -> dict[str, Any]:
    return {"ingest": {"validator": {"plugins": list(plugins), **more}}}


async def told(world: World, *command: str, **fields: Any) -> tuple[int, str]:
    reply = await world.submit(jobspec(*command), **fields)
    return (reply.errnum, reply.text if reply.errnum else "")


def test_a_file_s_validator_refuses_by_pair_and_by_exception_and_accepts_the_others(in_broker: Run, file: str) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        assert await told(world, "true") == (0, "")
        assert await told(world, "pair", urgency=3, flags=4) == (38, f"{broker.owner} 3 4")
        assert await told(world, "raise") == (1, "not this one")
        assert (await told(world, "wrong"))[0] == 1
        assert await told(world, "raise", flags=8) == (0, "")
        assert await told(world, "a", "b", "c") == (1, "more than 2 words")
        await world.ingest.unload()

    in_broker(scenario, config(file, "jobspec", args=["--most=2", "--require-version=any"]))


@pytest.mark.parametrize("deed", ["exit", "bug"])
def test_a_worker_that_dies_costs_the_job_a_refusal_and_the_next_job_has_another(
    in_broker: Run, file: str, deed: str, capfd: Any
) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        before = (await told(world, "pid"))[1]
        assert await told(world, deed) == DIED
        assert await told(world, "true") == (0, "")
        after = (await told(world, "pid"))[1]
        assert before != after
        # It outlives neither the module nor a change of the configuration.
        broker.config = config(file, args=["--most=1"])
        assert not (await world.client.call("job-ingest.config-reload")).errnum
        assert await told(world, "a", "b") == (1, "more than 1 words")
        assert not os.path.exists(f"/proc/{after}")
        last = (await told(world, "pid"))[1]
        await world.ingest.unload()
        assert not os.path.exists(f"/proc/{last}")

    in_broker(scenario, config(file))
    assert "a validator may print" in capfd.readouterr().err


def test_a_worker_that_hangs_is_killed(in_broker: Run, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        pid = (await told(world, "pid"))[1]
        monkeypatch.setattr(validators, "ANSWER_WITHIN", 0.2)
        refused = await told(world, "hang")
        assert refused == (errno.ETIMEDOUT, "the job validator gave no answer in 0.2 s and was killed")
        monkeypatch.undo()
        assert not os.path.exists(f"/proc/{pid}")
        assert await told(world, "true") == (0, "")
        # A module that is unloaded waits for no validator.
        hanging = world.client.start("job-ingest.submit", {"jobspec": jobspec("hang"), "urgency": 16, "flags": 0})
        await until_in_loop(validators_of(world)._thread._pool._work_queue.empty)
        await world.ingest.unload()
        assert (await world.client.next(hanging)).errnum

    in_broker(scenario, config(file))


def validators_of(world: World) -> validators.Validators:
    handler, *_ = world.ingest._methods["job-ingest.submit"]
    found: validators.Validators = handler.__self__.validators
    return found


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("import nosuch", ()),
        ("", ()),
        (FILE, ("--unknown",)),
        ("class Validator:\n    def __init__(self):\n        pass", ()),
    ],
    ids=["import", "no class", "option", "arguments"],
)
def test_a_file_that_cannot_be_used_refuses_each_job(in_broker: Run, file: str, text: str, args: Any) -> None:
    Path(file).write_text(text)

    async def scenario(broker: Any) -> None:
        world = World(broker)
        for _ in range(2):
            assert await told(world, "true") == DIED
        await world.ingest.unload()

    in_broker(scenario, config(file, args=list(args)))
