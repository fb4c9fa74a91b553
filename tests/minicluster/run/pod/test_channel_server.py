"""The channel between a lead and its operator: states, requests, and who is let in."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pods import Pods, pods, told

from headrace.minicluster.operator.keys import fresh_keys
from headrace.minicluster.run.pod.channel_server import ranks_of
from waiting import until


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Pods]:
    with pods(tmp_path) as made:
        made.with_channel()
        yield made


def test_the_operator_sees_brokers_and_jobs_and_can_end_an_instance(world: Pods) -> None:
    lead, follower = world.start_all(told({}, interactive=True))
    with world.operator(lead) as operator:
        state = operator.ask("watch", until={"state": "running", "brokers_up": 2})
        assert (state["demand_nodes"], state["idle_since"] is None) == (0, False)
        assert lead.run("flux", "submit", "-N2", "sleep", "300").returncode == 0
        state = operator.ask("watch", until={"idle_since": None, "demand_nodes": 2})
        assert state["jobs"]["run"] + state["jobs"]["sched"] == 1
        assert operator.ask("end") == {"ended": True}
        # The containers go on until they are told to go: their ends would complete their Job.
        until(lambda: "the lead was ended by a signal" in follower.output()[1])
        assert operator.ask("watch")["state"] == "finished"
        assert (lead.process.poll(), follower.process.poll()) == (None, None)
        for pod in (lead, follower):
            pod.signal(signal.SIGTERM)
    assert (lead.wait(), follower.wait()) == (128 + signal.SIGTERM,) * 2
    assert lead.message()["jobs"]["inactive"] == 1


def test_a_refused_request_names_the_field_and_others_still_work(world: Pods) -> None:
    lead, _ = world.start_all(told({}, interactive=True))
    with world.operator(lead) as operator:
        assert operator.ask("resize", size="3") == {"refused": "size: must be a whole number"}
        assert operator.ask("fly")["refused"].startswith("op: must be one of watch, resize")
        # Refused, and asked again, until the followers have told what they have.
        until(lambda: "drained" in operator.ask("resize", size=2))


def test_a_new_configuration_holds_and_leaves_the_brokers_where_they_are(world: Pods) -> None:
    lead, _ = world.start_all(told({}, interactive=True))
    with world.operator(lead) as operator:
        operator.ask("watch", until={"state": "running", "brokers_up": 2})
        config = {"policy": {"limits": {"duration": "1h"}}, "bootstrap": {"default_port": 1}}
        assert operator.ask("reload", config=config) == {"reloaded": True}
        for _ in range(2):
            # The second time from the file in the pod.
            found = json.loads(lead.run("flux", "config", "get").stdout)
            assert found["policy"] == {"limits": {"duration": "1h"}}
            assert found["bootstrap"]["default_port"] == 8050
            assert lead.run("flux", "config", "reload").returncode == 0
        refused = operator.ask("reload", config={"policy": {"limits": {"duration": "no time"}}})
        assert "duration" in refused["refused"]


def test_an_instance_is_saved_where_it_is_told(world: Pods) -> None:
    lead, _ = world.start_all(told({}, interactive=True))
    with world.operator(lead) as operator:
        operator.ask("watch", until={"state": "running", "brokers_up": 2})
        assert operator.ask("save", path="/mnt/flux/saved.tgz") == {"saved": "/mnt/flux/saved.tgz"}
        assert (lead.mount / "saved.tgz").stat().st_size > 0
        refused = operator.ask("save", path="/nowhere/saved.tgz")["refused"]
        assert "'/nowhere/saved.tgz'" in refused and "archived" not in refused
        # Another save replaces an archive that is there only when it is complete.
        (lead.mount / "saved.tgz").write_text("old")
        assert operator.ask("save", path="/mnt/flux/saved.tgz") == {"saved": "/mnt/flux/saved.tgz"}
        assert (lead.mount / "saved.tgz").read_bytes()[:2] == b"\x1f\x8b"
        assert not list(lead.mount.glob(".part-*"))


def test_after_a_save_the_end_writes_no_archive_unless_the_instance_goes_on(world: Pods) -> None:
    lead, _ = world.start_all(told({}, interactive=True, archive={"path": "/mnt/flux/queue.tgz"}))

    def dump() -> str:
        return lead.run("flux", "getattr", "content.dump").stdout.strip()

    with world.operator(lead) as operator:
        operator.ask("watch", until={"state": "running", "brokers_up": 2, "saved": False})
        for _ in range(2):
            # The second save finds nothing to be held.
            assert operator.ask("save", path="/mnt/flux/queue.tgz") == {"saved": "/mnt/flux/queue.tgz"}
            assert dump() == ""
        operator.ask("watch", until={"saved": True})
        assert operator.ask("go_on") == {"goes_on": True}
        assert dump() == "/mnt/flux/queue.tgz"
        operator.ask("watch", until={"saved": False})


def test_who_has_not_the_operators_key_gets_no_answer(world: Pods, tmp_path: Path) -> None:
    lead, _ = world.start_all(told({}, interactive=True))
    with world.operator(lead) as operator:
        operator.ask("watch", until={"state": "running"})
    (tmp_path / "operator" / "client.cert").write_text(fresh_keys().channel_client)
    with world.operator(lead) as stranger:
        answer = stranger.ask("save", path="/tmp/x", timeout=1.0)
    assert answer == {"refused": "the lead has not answered save within 1.0 s"}


def test_shrinking_waits_for_the_jobs_of_the_hosts_that_go_and_growing_brings_them_back(world: Pods) -> None:
    lead, follower = world.start_all(told({}, interactive=True))
    with world.operator(lead) as operator:
        operator.ask("watch", until={"state": "running", "brokers_up": 2})
        job = lead.run("flux", "submit", "-N2", "sleep", "300").stdout.strip()
        assert lead.run("flux", "job", "wait-event", job, "start").returncode == 0
        operator.begin("resize", size=1)
        operator_drained = lead.run("flux", "resource", "drain", "-no", "{ranks} {reason}")
        assert lead.run("flux", "cancel", job).returncode == 0
        assert operator.answer() == {"drained": True, "jobs": [job]}
        assert "scaled down" in operator_drained.stdout or "scaled down" in lead.run("flux", "resource", "drain").stdout
        assert operator.ask("resize", size=2) == {"drained": True}
        assert "scaled down" not in lead.run("flux", "resource", "drain").stdout
        assert lead.run("flux", "run", "-N2", "true").returncode == 0
    assert follower.process.poll() is None


def test_a_lead_whose_broker_hangs_says_so_and_takes_requests_when_it_goes_on(world: Pods) -> None:
    lead, _ = world.start_all(told({}, interactive=True))
    with world.operator(lead) as operator:
        operator.ask("watch", until={"state": "running", "brokers_up": 2})
        broker = int(lead.run("pgrep", "-x", "flux-broker-0").stdout)
        assert lead.run("kill", "-STOP", str(broker)).returncode == 0
        operator.begin("resize", size=2)
        assert operator.answer() == {"refused": "attr.get: no response within 20.0 s"}
        state = operator.ask("watch", until={"silent": "c-0"})
        assert (state["state"], state["brokers_silent"], state["brokers_up"]) == ("running", 1, 1)
        assert operator.ask("resize", size=2) == {"refused": "the lead's broker does not answer"}
        assert lead.run("kill", "-CONT", str(broker)).returncode == 0
        operator.ask("watch", until={"silent": "", "brokers_up": 2})
        assert operator.ask("resize", size=2) == {"drained": True}


@pytest.mark.parametrize(
    ("group", "size", "stay", "leave"),
    [("", 1, [0], [1, 4]), ("", 9, [0, 1, 4], []), ("g", 1, [2], [3]), ("g", 0, [], [2, 3]), ("h", 1, [], [])],
)
def test_hosts_are_told_apart_by_cluster_and_group(group: str, size: int, stay: list[int], leave: list[int]) -> None:
    assert ranks_of("c-[0-1],c-g-[0-1],c-2", "c", group, size) == (stay, leave)
