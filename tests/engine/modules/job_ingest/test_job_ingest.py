"""Submission: what is refused and with which words, and what a queue adds to a jobspec."""

from __future__ import annotations

import errno
import json
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs_world import World, jobspec, shown, signed

from headrace.engine.broker.module.context import RpcError
from headrace.engine.jobs.storable import MOST_LEVELS
from headrace.engine.modules.job_ingest import service as job_ingest
from headrace.engine.modules.job_ingest.checks import Checks, checks
from headrace.formats.spec import jobid
from headrace.formats.spec.job_state import FLAG_NOVALIDATE

Run = Callable[..., None]

# The configuration under which flux-core 0.88 gave the answers that are expected below.
CONFIG = {
    "policy": {
        "jobspec": {"defaults": {"system": {"duration": "10m", "queue": "batch"}}},
        "limits": {"duration": "2h"},
    },
    "queues": {
        "batch": {"requires": ["batch"], "policy": {"limits": {"job-size": {"max": {"nnodes": 2}}}}},
        "debug": {
            "requires": ["debug"],
            "policy": {"limits": {"duration": "1h"}, "jobspec": {"defaults": {"system": {"duration": "5m"}}}},
        },
    },
}


def on_nodes(count: int, **system: Any) -> dict[str, Any]:
    spec = jobspec(**system)
    return {**spec, "resources": [{"type": "node", "count": count, "with": spec["resources"]}]}


@pytest.mark.parametrize(
    ("spec", "errnum", "text"),
    [
        (on_nodes(3, queue="batch"), errno.EINVAL, "requested nnodes (3) exceeds policy limit of 2 for queue batch"),
        (
            jobspec(queue="debug", duration=7200),
            errno.EINVAL,
            "requested duration (2h) exceeds policy limit of 1h for queue debug",
        ),
        (jobspec(duration=10800), errno.EINVAL, "requested duration (3h) exceeds policy limit of 2h for queue batch"),
        (jobspec(queue="nosuch"), errno.EPERM, "Invalid queue 'nosuch' specified"),
    ],
)
def test_a_queue_refuses_with_the_recorded_words(in_broker: Run, spec: Any, errnum: int, text: str) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        reply = await world.submit(spec)
        assert (reply.errnum, reply.text) == (errnum, text)

    in_broker(scenario, CONFIG)


@pytest.mark.parametrize(
    ("spec", "added"),
    [
        (jobspec(), {"queue": "batch", "duration": 600.0, "constraints": {"properties": ["batch"]}}),
        (jobspec(queue="debug"), {"queue": "debug", "duration": 300.0, "constraints": {"properties": ["debug"]}}),
        (
            jobspec(queue="debug", duration=60, constraints={"ranks": ["0"]}),
            {"queue": "debug", "duration": 60, "constraints": {"and": [{"ranks": ["0"]}, {"properties": ["debug"]}]}},
        ),
    ],
)
def test_a_queue_completes_a_jobspec(in_broker: Run, spec: Any, added: dict[str, Any]) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        id = await world.job(spec)
        body = await world.client.rpc("job-info.lookup", {"id": id, "keys": ["jobspec", "J"], "flags": 0})
        system = json.loads(body["jobspec"])["attributes"]["system"]
        assert {key: system[key] for key in added} == added
        assert body["J"] == signed(spec, world.client.userid)

    in_broker(scenario, CONFIG)


@pytest.mark.parametrize(
    ("fields", "errnum", "text"),
    [
        ({"urgency": 99}, errno.EINVAL, "urgency range is [0:31]"),
        ({"urgency": -1}, errno.EINVAL, "urgency range is [0:31]"),
        ({"flags": 1024}, errno.EPROTO, "unknown submit flags 1024"),
        ({"J": "x"}, errno.EINVAL, "J is not of the form HEADER.PAYLOAD.SIGNATURE"),
        ({"J": signed({}, 4711)}, errno.EPERM, None),
        ({"J": "!.e30=.none"}, errno.EINVAL, None),
    ],
)
def test_a_bad_request_is_refused(in_broker: Run, fields: Any, errnum: int, text: str | None) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        reply = await world.submit(**fields)
        assert reply.errnum == errnum
        assert text is None or reply.text == text

    in_broker(scenario)


def test_jobs_of_instances_that_were_started_alike_have_ids_of_their_own(
    in_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = []

    async def scenario(broker: Any) -> None:
        ids.append(await World(broker).job())

    for number in (5, 6):
        monkeypatch.setattr(job_ingest.random, "randrange", lambda _stop, number=number: number)
        in_broker(scenario)
    assert [jobid.split(id)[1] for id in ids] == [5, 6]


def test_a_bad_jobspec_is_refused_by_its_field(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        for spec, text in (
            ({}, "Missing key (attributes)"),
            ({**jobspec(), "resources": 7}, "resources: must be an array of one node or slot in version 1"),
        ):
            reply = await world.submit(None, J=signed(spec, world.client.userid))
            assert (reply.errnum, reply.text) == (errno.EPERM, text)

    in_broker(scenario)


def test_unknown_hosts_and_schemes_are_refused(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        reply = await world.submit(jobspec(constraints={"hostlist": ["nosuch"]}))
        text = "host constraint contains invalid hosts: host 'nosuch' not found"
        assert (reply.errnum, reply.text) == (errno.EPERM, text)
        assert (await world.submit(jobspec(constraints={"hostlist": ["node0"]}))).errnum == 0
        assert (await world.submit(jobspec(constraints={"not": [{"hostlist": ["nosuch"]}]}))).errnum == 0
        reply = await world.submit(jobspec(dependencies=[{"scheme": "foo", "value": "x"}]))
        assert (reply.errnum, reply.text) == (errno.EINVAL, 'dependency scheme "foo" not supported')

    in_broker(scenario)


def test_jobs_of_one_turn_share_a_message_and_keep_their_order(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.job()
        body = {"J": signed(jobspec(), world.client.userid), "urgency": 16, "flags": 0}
        bad = {**body, "urgency": 40}
        tags = [world.client.start("job-ingest.submit", entry) for entry in (body, bad, body, body)]
        replies = [await world.client.next(tag) for tag in tags]
        assert [reply.errnum for reply in replies] == [0, errno.EINVAL, 0, 0]
        ids = [reply.obj["id"] for reply in replies if not reply.errnum]
        assert ids == sorted(set(ids))

    in_broker(scenario)


def test_a_plain_jobspec_is_taken_too(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.job()
        reply = await world.client.rpc("job-ingest.submit", {"jobspec": jobspec(), "urgency": 16, "flags": 0})
        found = await world.client.rpc("job-info.lookup", {"id": reply["id"], "keys": ["jobspec", "J"], "flags": 1})
        assert found["jobspec"] == shown()
        assert found["J"].endswith(".none")

    in_broker(scenario)


def test_a_guest_submits_nothing_and_hears_first_what_else_it_may_not(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        world.client = broker.client(guest=True)
        reply = await world.submit()
        assert (reply.errnum, reply.text) == (
            errno.EPERM,
            'only the instance owner can submit jobs signed with mechanism none: headrace.guests.submit is "refuse"',
        )
        assert (await world.submit(urgency=17)).errnum == errno.EINVAL
        assert (await world.submit(flags=4)).errnum == errno.EINVAL
        assert (await world.submit(flags=8)).errnum == errno.EPERM

    in_broker(scenario)


def validator(**keys: Any) -> dict[str, Any]:
    return {"ingest": {"validator": keys}}


def test_a_job_that_can_never_run_is_refused_at_once_where_that_is_configured(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        assert (await world.submit(jobspec())).errnum == 0
        world.infeasible = "unsatisfiable request"
        reply = await world.submit(on_nodes(99))
        assert (reply.errnum, reply.text) == (errno.EINVAL, "unsatisfiable request")
        assert (await world.submit(on_nodes(99), flags=8)).errnum == 0
        await world.ctx.unload()
        assert (await world.submit(on_nodes(99))).errnum == 0

    in_broker(scenario, validator(plugins=["jobspec", "feasibility"]))


@pytest.mark.parametrize(
    ("least", "spec", "taken"),
    [
        ({}, jobspec(), False),
        ({}, jobspec(batch={"script": "#!/bin/sh\n"}), True),
        ({}, {**jobspec(), "tasks": [{**jobspec()["tasks"][0], "command": ["/usr/bin/flux", "start"]}]}, True),
        ({}, {**jobspec(), "tasks": [{**jobspec()["tasks"][0], "command": ["flux", "run"]}]}, False),
        ({"minnodes": 2}, on_nodes(1), True),
        ({"minnodes": 2}, on_nodes(2), False),
        ({"minnodes": 3, "mincores": 2}, on_nodes(2), False),
    ],
)
def test_where_instances_are_required_other_jobs_are_refused(
    in_broker: Run, least: Any, spec: Any, taken: bool
) -> None:
    async def scenario(broker: Any) -> None:
        reply = await World(broker).submit(spec)
        assert (reply.errnum == 0) is taken
        limits = " or ".join(f">= {least[key]} {key[3:]}" for key in ("minnodes", "mincores") if key in least)
        what = f"disabled for jobs {limits}" if limits else "is disabled for this instance"
        assert taken or reply.text.startswith(f"Direct job submission {what}. Please use the flux-batch(1)")

    in_broker(scenario, validator(plugins=["require-instance"], **{"require-instance": least}))


def test_arguments_of_the_module_go_before_the_configuration_of_the_checks() -> None:
    config = validator(plugins=["feasibility"])
    args = ["validator-plugins=jobspec,require-instance", "validator-args=--require-instance-minnodes=4"]
    assert checks(config, []) == Checks(True, None)
    assert checks(config, args) == Checks(False, (4, 0))
    assert checks(config, [*args, "disable-validator"]) == checks({}, []) == Checks(False, None)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"plugins": [42]}, "ingest.validator.plugins"),
        ({"plugins": "feasibility"}, "ingest.validator.plugins"),
        ({"require-instance": {"minnodes": -1}}, "ingest.validator.require-instance.minnodes"),
        ({"require-instance": 3}, "ingest.validator"),
        ({"plugins": ["feasibilty"]}, "ingest.validator.plugins"),
        ({"plugins": ["site.py"]}, "ingest.validator.plugins"),
        ({"plugins": ["/nosuch/site.py"]}, "ingest.validator.plugins"),
        ({"args": ["--bogus"]}, "ingest.validator.args"),
        ({"args": "x"}, "ingest.validator.args"),
    ],
)
def test_wrong_checks_are_named(keys: Any, named: str) -> None:
    with pytest.raises(RpcError) as refused:
        checks(validator(**keys), [])
    assert str(refused.value.text).startswith(f"{named}: ")


def test_a_plugin_or_option_that_is_unknown_is_told_with_those_there_are() -> None:
    for keys, known in (({"plugins": ["x"]}, "feasibility, jobspec, "), ({"args": ["--x"]}, "--require-version")):
        with pytest.raises(RpcError) as refused:
            checks(validator(**keys), [])
        assert known in refused.value.text
        assert checks(validator(**keys, disable=True), []) == Checks(False, None)


def test_what_flux_has_for_its_validator_is_taken_and_its_options_set_limits() -> None:
    args = ["--require-version=any", "--feasibility-service=x", "--require-instance-mincores=3"]
    plugins = ["schema", "jobspec", "feasibility", "require-instance"]
    assert checks(validator(plugins=plugins, args=args), []) == Checks(True, (0, 3))


def test_a_bad_policy_is_refused_by_its_key(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        broker.config = {"policy": {"limits": {"duration": "soon"}}}
        reply = await world.client.call("job-ingest.config-reload")
        assert reply.errnum == errno.EINVAL
        assert "policy.limits.duration" in reply.text

    in_broker(scenario)


def test_other_versions_are_taken_where_the_configuration_says_so(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        spec = jobspec()
        spec["version"] = 9999
        spec["resources"] = [{"type": "node", "count": "1-4:2:*", "with": spec["resources"]}]

        async def submit(*args: Any) -> Any:
            broker.config = {"ingest": {"validator": {"args": list(args)}}}
            reply = await world.client.call("job-ingest.config-reload")
            return reply if reply.errnum else await world.submit(None, J=signed(spec, world.client.userid))

        assert (await submit()).text == "version: expected version 1, got 9999"
        assert (await submit("--require-version=any")).errnum == 0
        assert (await submit("--require-version=9999")).errnum == 0
        assert (await submit()).text == "version: expected version 1, got 9999"
        for wrong in ("--require-version=0", "--require-version", 7):
            reply = await submit(wrong)
            assert reply.errnum == errno.EINVAL and reply.text.startswith("ingest.validator.args: ")

    in_broker(scenario)


def test_what_was_taken_unseen_is_looked_at_when_it_comes_again(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        wrong, right = ({**jobspec(), "version": version} for version in (2, 1))
        for spec, flags, errnum in [
            (wrong, FLAG_NOVALIDATE, 0),
            (wrong, 0, errno.EPERM),
            (right, 0, 0),
            (wrong, 0, errno.EPERM),
            (right, FLAG_NOVALIDATE, 0),
            (right, 0, 0),
        ]:
            reply = await world.submit(None, J=signed(spec, world.client.userid), flags=flags)
            assert reply.errnum == errnum

    in_broker(scenario)


@pytest.mark.parametrize("levels", [MOST_LEVELS - 1, 900, *range(930, 1000, 5), 1100, 100_000])
def test_a_jobspec_may_not_nest_deeper_than_can_be_read_back(in_broker: Run, levels: int) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        spec = json.dumps({**jobspec(), "attributes": {"system": {"duration": 0}, "user": "@"}})
        deep = spec.replace('"@"', '{"a":' * levels + "1" + "}" * levels)
        body = {"jobspec": deep, "urgency": 0, "flags": 0}
        reply = await world.client.call("job-ingest.submit", body)
        assert reply.errnum == errno.EINVAL
        assert "jobspec is" in reply.text
        fewer = spec.replace('"@"', '{"a":' * (MOST_LEVELS - 3) + "1" + "}" * (MOST_LEVELS - 3))
        await world.client.rpc("job-ingest.submit", {**body, "jobspec": fewer})

    in_broker(scenario)


@pytest.mark.parametrize("attributes", [None, {}, {"user": {"a": 5}}])
def test_a_job_without_system_attributes_is_there_after_a_restart(
    in_broker: Run, tmp_path: Path, attributes: Any
) -> None:
    spec = {**on_nodes(1), "version": 9999, "attributes": attributes}
    ids: list[int] = []

    async def scenario(broker: Any) -> None:
        world = World(broker)
        ids.extend([await world.job(spec, flags=FLAG_NOVALIDATE, urgency=0) for _ in range(2)])

    async def after(broker: Any) -> None:
        world = World(broker)
        assert [id for id, _ in await world.all_events()] == ids
        for id in ids:
            body = await world.client.rpc("job-info.lookup", {"id": id, "keys": ["jobspec", "J"], "flags": 0})
            assert json.loads(body["jobspec"])["attributes"] == {**(attributes or {}), "system": {}}
            assert body["J"] == signed(spec, world.client.userid), "what was signed stays as it is"

    in_broker(scenario, statedir=str(tmp_path))
    in_broker(after, statedir=str(tmp_path))


def test_the_owner_may_submit_in_another_name_by_the_stamp_of_its_messages(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        world.client.userid += 1
        for body in ({"jobspec": jobspec()}, {"J": signed(jobspec(), world.client.userid)}):
            reply = await world.client.rpc("job-ingest.submit", {**body, "urgency": 16, "flags": 0})
            found = await world.client.rpc("job-manager.list", {"max_entries": 0})
            assert {job["id"]: job["userid"] for job in found["jobs"]}[reply["id"]] == broker.owner + 1
        other = {"J": signed(jobspec(), broker.owner), "urgency": 16, "flags": 0}
        reply = await world.client.call("job-ingest.submit", other)
        assert (reply.errnum, reply.text) == (errno.EPERM, f"signer={broker.owner} != requestor={broker.owner + 1}")

    in_broker(scenario)


def test_a_guest_submits_where_the_configuration_says_so_in_its_own_name_only(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        world.client = guest = broker.client(guest=True)
        assert (await world.submit()).errnum == 0
        reply = await guest.call("job-ingest.submit", {"J": signed(jobspec(), broker.owner), "urgency": 16, "flags": 0})
        assert (reply.errnum, reply.text) == (errno.EPERM, f"signer={broker.owner} != requestor={guest.userid}")
        assert (await world.submit(urgency=17)).errnum == errno.EINVAL
        assert (await world.submit(flags=4)).errnum == errno.EINVAL
        assert (await world.submit(flags=8)).errnum == errno.EPERM

    in_broker(scenario, config={"headrace": {"guests": {"submit": "as-owner"}}})


def test_jobs_that_run_as_their_users_are_taken_from_users_who_can_have_them(
    in_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def getpwuid(uid: int) -> None:
        asked.append(uid)
        if uid == 2002:
            raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", getpwuid)

    async def scenario(broker: Any) -> None:
        world = World(broker)
        world.client = guest = broker.client(guest=True)
        for userid, why in ((999, "below headrace.guests.min-uid, which is 1000"), (2002, "has no entry in passwd")):
            guest.userid = userid
            reply = await world.submit()
            text = f"jobs run as their users here, and user {userid} "
            assert reply.errnum == errno.EPERM and why in reply.text and reply.text.startswith(text)
        guest.userid = 2001
        for _ in range(3):
            assert (await world.submit()).errnum == 0
        # A name service is asked once about a user whom it knows.
        assert asked == [2002, 2001]

    in_broker(scenario, config={"headrace": {"guests": {"submit": "as-user"}}})
