"""`kill -9` of a broker whose policy has limits: no job is lost, none counts twice, and no limit is ever exceeded."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bootstrapped import Cluster, cluster

import seeds
from headrace.formats.spec import jobspec_build
from headrace.formats.spec.idset import Idset
from headrace.wire.query import signing
from sizes import size

USERS = {1001: {"max_running_jobs": 3}, 1002: {"max_cores": 4}}
_MOST = 2147483647


class Used(NamedTuple):
    """What a job held, from `begin` to `end` (seconds since the epoch)."""

    userid: int
    cores: int
    begin: float
    end: float


def rows() -> list[dict[str, Any]]:
    """An association for each user, with its limits."""
    return [
        {
            "userid": userid,
            "bank": "A",
            "def_bank": "A",
            "fairshare": 0.5,
            "max_running_jobs": _MOST,
            "max_active_jobs": _MOST,
            "queues": "",
            "active": 1,
            "projects": "*",
            "def_project": "*",
            "max_nodes": _MOST,
            "max_cores": _MOST,
            "max_sched_jobs": _MOST,
            **limits,
        }
        for userid, limits in USERS.items()
    ]


def configure(brokers: Cluster) -> None:
    """Load the policy with its rows at each start, on a simulated node of 16 cores."""
    fields = [", ".join(f"{key} = {json.dumps(value)}" for key, value in row.items()) for row in rows()]
    associations = ", ".join(f"{{{text}}}" for text in fields)
    plugin = f'{{load = "mf_priority.so", conf = {{config = {{associations = [{associations}]}}}}}}'
    config = Path(brokers.config)
    config.write_text(
        config.read_text().replace('cores = "0-1"', 'cores = "0-15"')
        + f"[job-manager]\nplugins = [{plugin}]\n[exec.testexec]\nallow-guests = true\n"
    )


def submit(brokers: Cluster, dice: random.Random, number: int, monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Submit simulated jobs of both users; returns the user of each acknowledged id."""
    found = {}
    for userid in USERS:
        monkeypatch.setenv("FLUX_HANDLE_USERID", str(userid))
        calls = []
        with brokers.handle() as handle:
            for _ in range(number):
                spec = jobspec_build.from_command(["hostname"], cores_per_task=dice.randint(1, 3))
                seconds = dice.choice((0.01, 0.05, 0.2))
                spec["attributes"]["system"]["exec"] = {"test": {"run_duration": f"{seconds}s"}}
                body = {"J": signing.sign(json.dumps(spec), userid), "urgency": 16, "flags": 0}
                calls.append(handle.rpc("job-ingest.submit", body))
            found.update({call.get()["id"]: userid for call in calls})
    monkeypatch.delenv("FLUX_HANDLE_USERID")
    return found


def counts(brokers: Cluster) -> dict[int, tuple[int, int]]:
    """How many jobs of each user the policy counts as active and as running."""
    found = json.loads(brokers.flux("jobtap", "query", "mf_priority.so").stdout)["mf_priority_map"]
    return {user["userid"]: (user["banks"][0]["cur_active_jobs"], user["banks"][0]["cur_run_jobs"]) for user in found}


def used(brokers: Cluster, jobs: dict[int, int]) -> list[Used]:
    """What the jobs held, by their R and the times of `alloc` and `free`."""
    found = []
    with brokers.handle() as handle:
        for id, userid in jobs.items():
            log = handle.rpc("job-info.lookup", {"id": id, "keys": ["eventlog"], "flags": 0}).get()["eventlog"]
            times = {event["name"]: event["timestamp"] for event in map(json.loads, log.splitlines())}
            assert log.count('"name":"clean"') == 1 and log.count('"name":"alloc"') <= 1, log
            if "alloc" in times:
                r = handle.rpc("job-info.lookup", {"id": id, "keys": ["R"], "flags": 1}).get()["R"]
                cores = Idset.parse(r["execution"]["R_lite"][0]["children"]["core"])
                found.append(Used(userid, len(cores), times["alloc"], times["free"]))
    return found


def most(spans: list[Used]) -> dict[int, tuple[int, int]]:
    """The largest numbers of jobs and of cores that each user had at a time."""
    # At equal times, resources are freed first: the next job takes them over.
    changes = sorted([(one.end, 0, one) for one in spans] + [(one.begin, 1, one) for one in spans])
    now, top = {userid: (0, 0) for userid in USERS}, {userid: (0, 0) for userid in USERS}
    for _, begins, one in changes:
        sign = 1 if begins else -1
        jobs, cores = now[one.userid]
        now[one.userid] = (jobs + sign, cores + sign * one.cores)
        top[one.userid] = (max(top[one.userid][0], jobs + sign), max(top[one.userid][1], cores + sign * one.cores))
    return top


@pytest.mark.soak
def test_limits_hold_and_no_job_is_lost_when_the_broker_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seeds.seed())
    with cluster(1, f"statedir={tmp_path}/state") as brokers:
        configure(brokers)
        brokers.lead()
        jobs: dict[int, int] = {}
        for _ in range(size("policy_kills")):
            jobs |= submit(brokers, dice, dice.randint(3, 12), monkeypatch)
            os.kill(brokers.pid(0), signal.SIGKILL)
            brokers.brokers[0].wait()
            brokers.lead()
        # Nothing starts any more, so the counts can be compared with the jobs that wait.
        jobs |= submit(brokers, dice, 12, monkeypatch)
        assert brokers.flux("queue", "stop", "--all").returncode == 0
        assert brokers.flux("queue", "idle", "--quiet").returncode == 0
        listed = [int(line) for line in brokers.flux("jobs", "-Anf", "pending", "-o", "{userid}").stdout.split()]
        assert counts(brokers) == {userid: (listed.count(userid), 0) for userid in USERS}
        assert brokers.flux("queue", "start", "--all").returncode == 0
        assert brokers.flux("queue", "drain").returncode == 0
        assert counts(brokers) == dict.fromkeys(USERS, (0, 0))
        top = most(used(brokers, jobs))
        ids = brokers.flux("jobs", "-Aan", "-o", "{id.dec}").stdout.split()
        assert sorted(map(int, ids)) == sorted(jobs)
        assert brokers.finish()[0] == 0
        brokers.until_nothing_is_left()
    # The limits were reached, and never exceeded.
    assert top[1001][0] == 3 and 3 <= top[1002][1] <= 4, top
