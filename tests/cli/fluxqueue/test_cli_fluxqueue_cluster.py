"""`headrace fluxqueue list|why|nodes|graph|hold|release`: what is printed of objects that are given."""

from __future__ import annotations

import json
import shlex
from argparse import Namespace
from typing import Any

import pytest

from headrace.cli.fluxqueue import cluster
from headrace.cli.main import headrace
from headrace.cluster_queue.crd import first_queue
from headrace.cluster_queue.names import FLUXQUEUE
from headrace.k8s.objects.kinds import Kind
from headrace.k8s.runtime.api import ApiError, Listing

Object = dict[str, Any]


def job(name: str, state: str, namespace: str = "team", **status: Any) -> Object:
    return {
        "metadata": {
            "name": f"{name}-job",
            "namespace": namespace,
            "ownerReferences": [{"kind": "Job", "name": name, "uid": name}],
        },
        "spec": {"name": name, "queue": "default", "nodes": 2, "duration": 60},
        "status": {"state": state, "queuedAt": "2026-01-01T00:00:00Z", **status},
    }


def node(name: str, ready: str = "True") -> Object:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "z"}}, "spec": {}, "status": status}


class Server:
    """The lists of an API server by plural; what is in no list may not be read."""

    def __init__(self) -> None:
        waits = {"reason": "waits for the jobs before it", "estimatedStart": "2026-01-01T01:00:00Z"}
        event = {
            **{"metadata": {"resourceVersion": "1"}, "involvedObject": {"uid": "second"}, "reason": "Queued"},
            **{
                "source": {"component": FLUXQUEUE},
                "lastTimestamp": "2026-01-01T00:00:01Z",
                "message": "in queue default",
            },
        }
        container = {"name": "a", "resources": {"requests": {"cpu": "1"}}}
        self.lists: dict[str, list[Object]] = {
            "fluxjobs": [
                job("first", "Running", nodes="n0", startedAt="2026-01-01T00:00:00Z"),
                job("second", "Held", position=1, **waits),
                job("third", "Held", "other", position=2),
                job("ended", "Finished"),
            ],
            "events": [event],
            "nodes": [node("n0"), node("n1", "False")],
            "fluxqueues": [first_queue()],
            "pods": [{"metadata": {}, "spec": {"nodeName": "n0", "containers": [container]}, "status": {}}],
        }
        self.merged: list[Object] = []
        self.asked: Namespace | None = None

    async def list_objects(self, kind: Kind, namespace: str = "") -> Listing:
        if kind.plural not in self.lists:
            raise ApiError(403, "Forbidden", f"cannot list resource {kind.plural}")
        return Listing(self.lists[kind.plural], "1")

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        raise ApiError(404, "NotFound", name)

    async def merge(self, kind: Kind, namespace: str, name: str, body: Object) -> None:
        self.merged.append(body["metadata"]["annotations"])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    import asyncio

    answers = Server()

    def connected(options: Namespace, act: Any) -> int:
        answers.asked = options
        return int(asyncio.run(act(answers, options.namespace or "team")))

    monkeypatch.setattr(cluster, "connected", connected)
    return answers


def run(capsys: pytest.CaptureFixture[str], line: str) -> str:
    assert headrace(shlex.split(line)[1:]) == 0
    return capsys.readouterr().out


def test_list(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "headrace fluxqueue list").splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", "first", "second"]
    assert lines[2].split()[1:7] == ["job", "Held", "default", "1", "2", "2026-01-01T01:00:00Z"]
    assert [line.split()[:2] for line in run(capsys, "headrace fluxqueue list -A").splitlines()] == [
        *(["NAMESPACE", "NAME"], ["team", "first"], ["team", "second"], ["other", "third"]),
    ]
    assert "ended" in run(capsys, "headrace fluxqueue list -a")
    told = json.loads(run(capsys, "headrace fluxqueue list --all-namespaces --all --json"))
    assert [(one["name"], one["position"]) for one in told["jobs"]] == [
        *(("ended", None), ("first", None), ("second", 1), ("third", 2)),
    ]
    run(capsys, "headrace fluxqueue list -n other --kubeconfig file --context there")
    asked = server.asked
    assert asked and (asked.namespace, asked.kubeconfig, asked.context) == ("other", "file", "there")


def test_options_may_stand_before_the_command(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "headrace fluxqueue -n team list") == run(capsys, "headrace fluxqueue list -n team")
    run(capsys, "headrace fluxqueue -n why list -A")
    assert server.asked and (server.asked.namespace, server.asked.all_namespaces) == ("why", True)
    assert headrace(["fluxqueue", "--help"]) == 0
    assert "COMMAND" in capsys.readouterr().out


def test_a_cluster_without_the_queue_is_told_how_to_get_it(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def absent(kind: Kind, namespace: str = "") -> Listing:
        raise ApiError(404, "", "404 page not found")

    monkeypatch.setattr(server, "list_objects", absent)
    assert headrace(["fluxqueue", "list"]) == 1
    told = capsys.readouterr().err
    assert "the queue is not installed in this cluster (404 page not found)" in told
    assert "headrace fluxqueue manifests" in told


def test_why(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "headrace fluxqueue why second --namespace team --kubeconfig f --context c").splitlines()
    assert lines[1:3] == ["queue     default, position 1", "reason    waits for the jobs before it"]
    assert lines[-1] == "2026-01-01T00:00:01Z  Queued: in queue default"
    told = json.loads(run(capsys, "headrace fluxqueue why second --json"))
    assert (told["position"], told["events"][0]["reason"]) == (1, "Queued")
    # Events may be for others to read.
    del server.lists["events"]
    assert json.loads(run(capsys, "headrace fluxqueue why second --json"))["events"] == []
    assert headrace(["fluxqueue", "why", "nope"]) == 1
    assert capsys.readouterr().err.startswith("headrace-fluxqueue: no object nope waits or runs in namespace team")


def test_nodes(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [line.split() for line in run(capsys, "headrace fluxqueue nodes").splitlines()]
    assert rows[1] == ["n0", "default", "usable", "3000/4000", "8192/8192", "9/10", "team/first"]
    assert rows[2][:4] == ["n1", "default", "not", "usable"]
    del server.lists["pods"]
    line = "headrace fluxqueue nodes --namespace team --kubeconfig f --context c"
    assert run(capsys, line).splitlines()[1].split()[3:5] == ["4000", "8192"]
    first = json.loads(run(capsys, "headrace fluxqueue nodes --json"))[0]
    assert (first["name"], first["has"]["cpu"], first["free"], first["jobs"]) == ("n0", 4000, None, ["team/first"])


def test_graph(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "headrace fluxqueue graph --queue default --kubeconfig f --context c").splitlines()
    assert lines[:4] == ["cluster cluster0", "  zone z", "    node n0", "      cpu cpu0 4000m"]
    assert "    node n1 (not usable)" in lines
    jgf = run(capsys, "headrace fluxqueue graph --jgf --namespace team")
    assert len(json.loads(jgf)["graph"]["nodes"]) == 10
    assert run(capsys, "headrace fluxqueue graph --json") == jgf


def test_nodes_and_graph_where_a_queue_is_invalid(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    before = run(capsys, "headrace fluxqueue nodes")
    durations = {"defaultDuration": "2h", "maxDuration": "1h"}
    for name, spec in (("wrong", durations), ("shares", {"nodeSelector": {"topology.kubernetes.io/zone": "z"}})):
        metadata = {"name": name, "creationTimestamp": "2026-01-02T00:00:00Z"}
        server.lists["fluxqueues"].append({"metadata": metadata, "spec": spec})
    assert headrace(["fluxqueue", "nodes"]) == 0
    said = capsys.readouterr()
    assert said.out == before
    assert "FluxQueue wrong is Invalid and has no nodes: spec.defaultDuration: 2h is longer than" in said.err
    assert "FluxQueue shares is Invalid and has no nodes: it shares node n0 with" in said.err
    assert run(capsys, "headrace fluxqueue graph").startswith("cluster cluster0")
    assert headrace(["fluxqueue", "graph", "--queue", "shares"]) == 1
    assert "FluxQueue shares is Invalid: it shares node n0 with" in capsys.readouterr().err


def test_nodes_has_what_jobs_have_places_for_as_not_free(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    def free() -> list[tuple[int, int, int]]:
        lines = json.loads(run(capsys, "headrace fluxqueue nodes --json"))
        return [(line["free"]["cpu"], line["free"]["pod"], len(line["jobs"])) for line in lines]

    before = free()
    slot = {"type": "slot", "count": 3, "with": [{"type": "cpu", "count": 500}, {"type": "pod", "count": 1}]}
    jobspec = json.dumps({"version": 1, "resources": [{"type": "zone", "count": 1, "with": [slot]}]})
    released = job("released", "Released", nodes="n[0,0,1]", freed="1", jobid="7")
    released["spec"]["jobspec"] = jobspec
    amounts = [{"name": "n1", "amounts": {"cpu": 2000, "pod": 1}}]
    match = job("match-9", "Running", "fluxqueue-system", nodes="n1", jobid="9")
    match["metadata"]["labels"] = {"fluxqueue/jobid": "9"}
    match["spec"] |= {"type": 10, "jobspec": jobspec, "resources": {"nodes": amounts}}
    server.lists["fluxjobs"] += [released, match]
    (cpu0, pod0, jobs0), (cpu1, pod1, jobs1) = before
    assert free() == [(cpu0 - 500, pod0 - 1, jobs0 + 1), (cpu1 - 2500, pod1 - 2, jobs1 + 2)]
    # A pod that has come to its place is counted once.
    container = {"name": "a", "resources": {"requests": {"cpu": "500m"}}}
    metadata = {"name": "r", "namespace": "team", "labels": {"fluxqueue/jobid": "7"}}
    server.lists["pods"].append({"metadata": metadata, "spec": {"nodeName": "n0", "containers": [container]}})
    assert free()[0] == (cpu0 - 500, pod0 - 1, jobs0 + 1)


def test_nodes_has_what_each_set_of_a_job_has_places_for(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    def free() -> list[int]:
        return [line["free"]["cpu"] for line in json.loads(run(capsys, "headrace fluxqueue nodes --json"))]

    (cpu0, cpu1), slots = free(), []
    for label, cpu in (("launcher", 100), ("worker", 700)):
        slots.append({"type": "slot", "count": 1, "label": label, "with": [{"type": "cpu", "count": cpu}]})
    sets = [{"name": "launcher", "indexes": "0"}, {"name": "worker", "indexes": "1-2"}]
    released = job("released", "Released", nodes="n[0,0,1]", sets=sets, jobid="7")
    released["spec"]["jobspec"] = json.dumps({"version": 1, "resources": slots})
    server.lists["fluxjobs"].append(released)
    assert free() == [cpu0 - 800, cpu1 - 700]


def test_hold_and_release(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "headrace fluxqueue hold second --namespace team").startswith("second is on hold: ")
    assert json.loads(run(capsys, "headrace fluxqueue hold second --json --kubeconfig f --context c"))["hold"] is True
    assert run(capsys, "headrace fluxqueue release job/second --namespace team").startswith("job/second is released: ")
    told = json.loads(run(capsys, "headrace fluxqueue release second --json --kubeconfig f --context c"))
    assert told == {"name": "second", "namespace": "team", "hold": False}
    key = "fluxqueue/hold"
    assert server.merged == [{key: "true"}, {key: "true"}, {key: None}, {key: None}]
