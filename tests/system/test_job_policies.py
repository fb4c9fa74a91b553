"""Jobs of two users in an instance whose configuration loads the policy mf_priority."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from machine import Instance, machine, missing

ALICE, BOB = 61001, 61002
CONFIG = """
[access]
allow-guest-user = true
[headrace.guests]
submit = "as-user"
[[job-manager.plugins]]
load = "/usr/lib/flux/job-manager/plugins/mf_priority.so"
"""
_CALL = "import flux, json, sys; flux.Flux().rpc(sys.argv[1], json.loads(sys.argv[2])).get()"

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "never")


class Accounts(Instance):
    """The instance, with rows of both users in its policy."""

    def call(self, method: str, body: Any = None) -> None:
        self.out(
            "root",
            f"flux python -c {shlex.quote(_CALL)} job-manager.mf_priority.{method} {shlex.quote(json.dumps(body))}",
        )

    def associate(self, userid: int, bank: str, fairshare: float, most_running: int = 100) -> None:
        row = {
            "userid": userid,
            "bank": bank,
            "def_bank": bank,
            "fairshare": fairshare,
            "max_running_jobs": most_running,
            "max_active_jobs": 100,
            "queues": "",
            "active": 1,
            "projects": "*",
            "def_project": "*",
            "max_nodes": 100,
            "max_cores": 1000,
            "max_sched_jobs": 100,
        }
        self.call("rec_update", {"data": [row]})
        self.call("reprioritize")

    def order(self) -> list[str]:
        """The names of waiting jobs, the next first."""
        lines = self.out("root", "flux jobs -Anf sched -o '{priority} {name}'").splitlines()
        return [line.split()[1] for line in sorted(lines, key=lambda line: -int(line.split()[0]))]


@pytest.fixture(scope="module")
def accounts() -> Iterator[Accounts]:
    with machine({"alice": ALICE, "bob": BOB}) as made:
        here = Accounts(made, CONFIG)
        yield here
        here.close()


def test_waiting_jobs_of_two_users_change_places(accounts: Accounts) -> None:
    assert accounts.out("root", "flux jobtap list") == "mf_priority.so"
    early = accounts.out("alice", "flux submit --job-name=early true")
    # Without data, a job waits for a priority.
    assert accounts.out("root", f"flux jobs -no '{{state}}' {early}") == "PRIORITY"
    accounts.associate(ALICE, "science", 0.9)
    accounts.associate(BOB, "trade", 0.1)
    accounts.out("alice", f"flux job wait-event -t 60 {early} clean")
    refused = accounts.sh("bob", "flux submit --setattr=bank=science true")
    assert "cannot find user/bank or user/default bank entry for uid: 61002" in refused.stderr
    # A job of the owner, who needs no association, has the node until the others wait.
    first = accounts.out("root", "flux submit -N1 --exclusive sleep inf")
    accounts.out("root", f"flux job wait-event -t 60 {first} start")
    for user in ("alice", "bob"):
        accounts.out(user, f"flux submit -N1 --exclusive --job-name={user} true")
    assert accounts.order() == ["alice", "bob"]
    accounts.associate(BOB, "trade", 0.95)
    assert accounts.order() == ["bob", "alice"]
    accounts.out("root", f"flux cancel {first}; flux queue drain")
    lines = accounts.out("root", "flux jobs -Aanf inactive -o '{t_run} {name}'").splitlines()
    started = [line.split()[1] for line in sorted(lines, key=lambda line: float(line.split()[0]))]
    assert started[-2:] == ["bob", "alice"]


def test_a_user_runs_no_more_jobs_than_allowed_and_sees_why(accounts: Accounts) -> None:
    accounts.associate(ALICE, "science", 0.9, most_running=1)
    accounts.out("root", "flux queue stop --quiet")
    jobs = [accounts.out("alice", "flux submit sleep inf") for _ in range(2)]
    accounts.out("root", "flux queue start --quiet")
    accounts.out("alice", f"flux job wait-event -t 60 {jobs[0]} start")
    reason = "limit: max-running-jobs-user-limit"
    assert accounts.out("alice", f"flux jobs -no '{{state}} {{contextual_info}}' {jobs[1]}") == f"SCHED {reason}"
    held = accounts.out("alice", "flux submit true")
    assert "max-running-jobs-user-limit" in accounts.out("alice", f"flux job eventlog {held}")
    accounts.out("alice", f"flux cancel {jobs[0]}; flux job wait-event -t 60 {jobs[1]} start; flux cancel {jobs[1]}")
    accounts.out("root", "flux queue drain")
    assert accounts.out("alice", f"flux jobs -ano '{{result}}' {held}") == "COMPLETED"


def test_the_policy_is_the_owners(accounts: Accounts) -> None:
    for command in ("list", "query mf_priority.so", "remove mf_priority.so", "load x.so"):
        assert "Request requires owner credentials" in accounts.sh("alice", f"flux jobtap {command}").stderr
    found = json.loads(accounts.out("root", "flux jobtap query mf_priority.so"))
    assert [user["userid"] for user in found["mf_priority_map"]] == [ALICE, BOB]
    # The policy is loaded anew, without data.
    listed = accounts.out("root", "flux jobtap load --remove=mf_priority.so mf_priority.so; flux jobtap list --all")
    assert listed.splitlines() == [".priority-default", "mf_priority.so"]
    assert json.loads(accounts.out("root", "flux jobtap query mf_priority.so"))["mf_priority_map"] == []
    # The configuration loads it again with its module.
    accounts.out("root", "flux jobtap remove all; flux module reload job-manager")
    assert accounts.out("root", "flux jobtap list") == "mf_priority.so"
