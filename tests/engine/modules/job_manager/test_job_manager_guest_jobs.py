"""The jobs of a guest: how many there may be, and that what waits of them is on disk."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs_world import World, jobspec, signed

from headrace.engine.modules.job_manager.guest_jobs import BYTES, JOBS, GuestJobs

Run = Callable[..., None]


def test_what_a_job_was_counted_for_is_given_back_once() -> None:
    jobs = GuestJobs(0, {JOBS: 2, BYTES: 100}.__getitem__)
    jobs.begin(1, 7, 60)
    jobs.begin(1, 7, 60)
    why = "user 7 may have 100 bytes in the jobspecs of active jobs (headrace.guests.limits.active-bytes)"
    assert jobs.refusal(7, 41) == f"{why}: submit again when some of them have ended"
    assert (jobs.refusal(7, 40), jobs.refusal(8, 100), jobs.refusal(0, 1000)) == ("", "", "")
    jobs.begin(2, 7, 0)
    assert "may have 2 active jobs (headrace.guests.limits.active-jobs)" in jobs.refusal(7, 0)
    for _ in range(2):
        jobs.end(2, 7)
        jobs.end(3, 7)
    assert jobs.refusal(7, 40) == ""
    assert jobs.refusal(7, 41)


def guests(limit: int) -> dict[str, Any]:
    return {"headrace": {"guests": {"submit": "as-owner", "limits": {JOBS: limit}}}}


@pytest.mark.parametrize("durable", [False, True])
def test_a_guest_has_so_many_active_jobs_and_the_owner_any_number(
    in_broker: Run, tmp_path: Path, durable: bool
) -> None:
    async def scenario(broker: Any) -> None:
        broker.config = guests(2)
        world = World(broker)
        await world.begin()
        guest = broker.client(guest=True)

        async def submit(client: Any) -> Any:
            body = {"J": signed(jobspec(), client.userid), "urgency": 0, "flags": 0}
            return await client.call("job-ingest.submit", body)

        ids = [(await submit(guest)).obj["id"] for _ in range(2)]
        refused = await submit(guest)
        why = f"user {guest.userid} may have 2 active jobs (headrace.guests.limits.active-jobs)"
        assert (refused.errnum, refused.text.partition(":")[0]) == (errno.EAGAIN, why)
        assert [(await submit(world.client)).errnum for _ in range(3)] == [0, 0, 0]
        await guest.rpc("job-manager.raise", {"id": ids[0], "type": "cancel", "severity": 0})
        assert (await submit(guest)).errnum == 0
        broker.config = guests(100)
        assert (await submit(guest)).errnum == 0

    in_broker(scenario, **({"statedir": str(tmp_path)} if durable else {}))


def test_a_guests_job_waits_on_disk_and_goes_on_as_it_was_submitted_also_after_a_restart(
    in_broker: Run, tmp_path: Path
) -> None:
    ids: list[int] = []
    environment = {"A": "x" * 5000}

    def kept(world: World) -> Any:
        return world.manager._methods["job-manager.submit"][0].__self__

    async def before(broker: Any) -> None:
        broker.config = guests(1)
        world = World(broker)
        await world.begin()
        guest = broker.client(guest=True)
        spec = jobspec("echo", environment=environment)
        body = {"J": signed(spec, guest.userid), "urgency": 0, "flags": 0}
        ids.append((await guest.rpc("job-ingest.submit", body))["id"])
        await guest.rpc("job-manager.update", {"id": ids[0], "updates": {"attributes.system.duration": 60.0}})
        job = kept(world).store.active[ids[0]]
        assert job._jobspec is None
        assert isinstance(kept(world).store.submissions[ids[0]], int)
        looked = await guest.rpc("job-info.lookup", {"id": ids[0], "keys": ["jobspec", "J"], "flags": 2})
        assert '"duration": 60.0' in looked["jobspec"]
        assert looked["J"] == body["J"]

    async def after(broker: Any) -> None:
        broker.config = guests(1)
        world = World(broker)
        await world.begin()
        guest = broker.client(guest=True)
        assert kept(world).store.active[ids[0]]._jobspec is None
        body = {"J": signed(jobspec(), guest.userid), "urgency": 0, "flags": 0}
        assert (await guest.call("job-ingest.submit", body)).errnum == errno.EAGAIN
        await guest.rpc("job-manager.urgency", {"id": ids[0], "urgency": 16})
        await world.alloc(ids[0])
        started = world.starts[ids[0]].obj["jobspec"]
        assert started["attributes"]["system"]["environment"] == environment
        assert started["attributes"]["system"]["duration"] == 60.0
        world.say(ids[0], "start")
        world.end(ids[0])
        await world.client.rpc("job-manager.drain")
        assert (await guest.call("job-ingest.submit", body)).errnum == 0

    in_broker(before, statedir=str(tmp_path))
    in_broker(after, statedir=str(tmp_path))
