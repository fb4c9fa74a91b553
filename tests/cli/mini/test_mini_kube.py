"""What the commands of `headrace mini` ask an API server for, and what they say of its answers."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
import yaml

from flux_jobs.read.samples import job
from headrace.cli.main import headrace
from headrace.cli.mini import change, main, program
from headrace.flux_jobs.operator.names import STATUS_ANNOTATION
from headrace.flux_jobs.operator.policy import flux_job
from headrace.flux_jobs.read.cluster import LABEL_KEY, LABEL_VALUE
from headrace.minicluster.api import fields
from headrace.minicluster.operator.builders.images import Images

CLUSTERS = "/apis/flux-framework.org/v1alpha2/namespaces/team/miniclusters"
PODS = "/api/v1/namespaces/team/pods"
JOBS = "/apis/batch/v1/namespaces/team/jobs"
STREAMS = ("stdin", "stdout", "stderr")


def cluster(name: str = "sample", **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team", "uid": "u1", "generation": 1, "managedFields": []}
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": metadata}
    return {**head, "spec": {"size": 2, "containers": [{}]}, "status": {"observedGeneration": 1, **status}}


class Cut(bytes):
    """A body whose connection is closed before its end."""


class Server:
    """An API server that answers by method and path; `asked` has (method, path, query, body) of each request."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], tuple[int, Any]] = {}
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.first: dict[tuple[str, str], list[tuple[int, Any]]] = {}
        """By method and path: what is answered before the answer that stays."""

    def answer(self, method: str, path: str, body: Any, status: int = 200) -> None:
        self.answers[method, path] = (status, body)

    def items(self, path: str, *found: Any) -> None:
        self.answer("GET", path, {"metadata": {"resourceVersion": "5"}, "items": list(found)})

    def last(self, method: str) -> tuple[str, dict[str, str], Any]:
        return next(one[1:] for one in reversed(self.asked) if one[0] == method)

    def respond(self, method: str, url: str, body: bytes) -> tuple[int, bytes]:
        place = urlparse(url)
        query = {key: values[0] for key, values in parse_qs(place.query).items()}
        self.asked.append((method, place.path, query, json.loads(body) if body else None))
        missing = (404, {"kind": "Status", "reason": "NotFound", "message": f"{place.path} not found"})
        before = self.first.get((method, place.path))
        status, found = before.pop(0) if before else self.answers.get((method, place.path), missing)
        return status, found if isinstance(found, bytes) else json.dumps(found).encode()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Such a server, in the kubeconfig that the commands find; its namespace is team."""
    found = Server()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = found.respond(self.command, self.path, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer) + isinstance(answer, Cut)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_PATCH = do_DELETE = handle_any

        def log_message(self, format: str, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    here = {"name": "here", "cluster": {"server": f"http://127.0.0.1:{http.server_port}"}}
    config = {
        "clusters": [here, {"name": "away", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "namespace": "team"}} for name in ("here", "away")],
        "current-context": "here",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
    yield found
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture
def file(tmp_path: Path) -> str:
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": "sample"}}
    path = tmp_path / "file.yaml"
    path.write_text(yaml.safe_dump_all([claim, {**head, "spec": {"containers": [{"command": "x"}]}}]))
    return str(path)


@pytest.fixture
def taking(server: Server) -> Server:
    """One that takes the documents of `file`."""
    claims = {"name": "persistentvolumeclaims", "kind": "PersistentVolumeClaim", "namespaced": True}
    server.answer("GET", "/api/v1", {"resources": [claims]})
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    server.answer("PATCH", "/api/v1/namespaces/team/persistentvolumeclaims/data", claim)
    server.answer("PATCH", f"{CLUSTERS}/sample", cluster())
    return server


def test_all_documents_of_a_file_are_applied(taking: Server, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert headrace(["mini", "apply", "--no-wait", file]) == 0
    told = [line.removeprefix("headrace-mini: ") for line in capsys.readouterr().err.splitlines()]
    assert told[-2:] == ["PersistentVolumeClaim/data applied", "MiniCluster/sample applied"]
    path, query, body = taking.last("PATCH")
    assert path == f"{CLUSTERS}/sample" and body["metadata"] == {"name": "sample", "namespace": "team"}
    assert query == {"fieldManager": "headrace-mini", "force": "false"}


def test_fields_of_others_are_taken_over_only_by_force(taking: Server, file: str) -> None:
    assert headrace(["mini", "apply", "--no-wait", "--force", "--quiet", file]) == 0
    assert taking.last("PATCH")[1]["force"] == "true"


@pytest.mark.parametrize(
    ("phase", "exit_code", "waits", "status"),
    [
        ("Running", None, [], 0),
        ("Finished", 0, [], 0),
        ("Finished", 0, ["--wait"], 0),
        ("Failed", 7, [], 7),
        ("Failed", 7, ["--wait"], 7),
        ("Invalid", None, [], 1),
    ],
)
def test_it_waits_until_the_job_runs_or_has_ended(
    taking: Server, file: str, phase: str, exit_code: int | None, waits: list[str], status: int,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    exited = {} if exit_code is None else {"exitCode": exit_code}
    taking.items(CLUSTERS, cluster(phase=phase, reason="so it is", **exited))
    assert headrace(["mini", "apply", *waits, file]) == status
    assert capsys.readouterr().err.splitlines()[-1] == f"headrace-mini: {phase}: so it is"


def test_one_that_has_ended_is_not_taken_for_a_run(
    taking: Server, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    over = cluster(phase="Finished", exitCode=0, times={"finished": "2026-01-01T00:00:00Z"})
    over["metadata"]["generation"] = 2
    taking.answer("PATCH", f"{CLUSTERS}/sample", over)
    taking.answer("GET", f"{CLUSTERS}/sample", over)
    told = (
        "MiniCluster sample has ended (exit code 0) and does not run again: headrace mini delete sample, then apply it"
    )
    for words in (["apply", file], ["apply", "--wait", file], ["scale", "sample", "3"]):
        assert headrace(["mini", *words]) == 1
        assert told in capsys.readouterr().err
    assert not [one for one in taking.asked if one[0] == "PATCH"], "nothing is changed"
    assert headrace(["mini", "apply", "--no-wait", file]) == 0
    assert told in capsys.readouterr().err


def test_one_that_another_controller_manages_is_not_waited_for(
    taking: Server, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = cluster()
    theirs["spec"]["managedBy"] = "example.com/other"
    taking.answer("PATCH", f"{CLUSTERS}/sample", theirs)
    for waits in ([], ["--wait"], ["--no-wait"]):
        assert headrace(["mini", "apply", *waits, file]) == 0
        told = "headrace-mini: managed by example.com/other (spec.managedBy): Headrace's operator ignores it"
        assert capsys.readouterr().err.splitlines()[-1].startswith(told)


def conflict(*pairs: tuple[str, str]) -> dict[str, Any]:
    """The API server's answer to an apply of fields that other managers have set: (manager, field)."""
    causes = [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{manager}" using v1', "field": field}
        for manager, field in pairs
    ]
    return {"kind": "Status", "reason": "Conflict", "message": "Apply failed", "details": {"causes": causes}}


def test_fields_that_our_commands_and_kubectl_have_set_are_taken_over(
    taking: Server, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"{CLUSTERS}/sample"
    taking.first["PATCH", path] = [(409, conflict(("headrace-mini", ".spec.size"), ("kubectl-edit", ".spec.tasks")))]
    assert headrace(["mini", "apply", "--no-wait", file]) == 0
    asked = [query["force"] for method, where, query, _ in taking.asked if (method, where) == ("PATCH", path)]
    assert asked == ["false", "true"]
    told = capsys.readouterr().err
    assert "MiniCluster/sample applied, overwrote spec.tasks of kubectl-edit\n" in told


def test_a_name_that_is_to_be_generated_is_made_as_the_api_server_makes_it(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "generated.yaml"
    one = {"containers": [{"image": "busybox", "command": "true"}], "size": 1}
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"generateName": "run-"}}
    path.write_text(json.dumps({**head, "spec": one}))
    names = set()
    for _ in range(2):
        headrace(["mini", "apply", "--no-wait", str(path)])
        where, _query, body = server.last("PATCH")
        assert where == f"{CLUSTERS}/{body['metadata']['name']}" and "generateName" not in body["metadata"]
        names.add(body["metadata"]["name"])
    assert len(names) == 2 and all(re.fullmatch("run-[b-z2-9]{5}", name) for name in names)
    capsys.readouterr()
    assert headrace(["mini", "validate", str(path)]) == 0


def test_fields_that_kubectl_had_applied_and_the_file_no_longer_has_are_told(
    taking: Server, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = cluster()
    stored["spec"] = {"size": 2, "tasks": 4, "cleanup": False, "containers": [{"command": "x"}]}
    owned = {"f:spec": {"f:tasks": {}, "f:cleanup": {}, "f:containers": {}}}
    entry = {"manager": "kubectl-client-side-apply", "operation": "Update", "fieldsV1": owned}
    stored["metadata"]["managedFields"] = [entry]
    taking.answer("PATCH", f"{CLUSTERS}/sample", stored)
    assert headrace(["mini", "apply", "--no-wait", file]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == (
        "headrace-mini: MiniCluster/sample: spec.tasks stays as set by kubectl-client-side-apply, though not in the "
        'file; to remove: kubectl patch minicluster sample -n team --type merge -p \'{"spec": {"tasks": null}}\''
    )


def test_a_conflict_names_the_field_its_manager_and_the_ways_out(
    taking: Server, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    both = conflict(("headrace-mini", ".spec.size"), ("kube-controller-manager", ".spec.size"))
    taking.answer("PATCH", f"{CLUSTERS}/sample", both, 409)
    assert headrace(["mini", "apply", file]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "headrace-mini: MiniCluster/sample: spec.size is set by kube-controller-manager (a HorizontalPodAutoscaler); "
        "remove it from the file, or use --force to take it over"
    )


def test_a_conflict_about_something_else_is_told_in_the_servers_words(
    taking: Server, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    taking.answer("PATCH", f"{CLUSTERS}/sample", {"kind": "Status", "reason": "Conflict", "message": "moved"}, 409)
    assert headrace(["mini", "apply", file]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "headrace-mini: moved"


@pytest.mark.parametrize("refused", ["list", "watch"])
def test_without_the_right_to_watch_it_looks_again_and_again(
    taking: Server, file: str, refused: str, capsys: pytest.CaptureFixture[str]
) -> None:
    forbidden = (403, {"kind": "Status", "reason": "Forbidden", "message": f"may not {refused}"})
    listed = (200, {"metadata": {"resourceVersion": "5"}, "items": [cluster(phase="Starting", ready="0/2")]})
    taking.first["GET", CLUSTERS] = [forbidden] if refused == "list" else [listed, forbidden]
    waits, ended = cluster(phase="Starting", ready="1/2"), cluster(phase="Failed", exitCode=4)
    for version, one in enumerate((waits, ended)):
        one["metadata"]["resourceVersion"] = str(version)
    # The first is asked for before anything is sent.
    taking.first["GET", f"{CLUSTERS}/sample"] = [(200, waits), (200, waits)]
    taking.answer("GET", f"{CLUSTERS}/sample", ended)
    assert headrace(["mini", "apply", "--wait", file]) == 4
    told = capsys.readouterr().err.splitlines()
    assert told[-2:] == ["headrace-mini: Starting 1/2", "headrace-mini: Failed"]


def test_the_end_of_one_that_was_applied_before_can_be_waited_for(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = cluster(phase="Failed", exitCode=4)
    server.answer("GET", f"{CLUSTERS}/sample", cluster(phase="Running", ready="2/2"))
    server.items(CLUSTERS, ended)
    assert headrace(["mini", "status", "--wait", "--json", "sample"]) == 4
    told = capsys.readouterr()
    assert json.loads(told.out)["status"]["exitCode"] == 4
    assert told.err == "headrace-mini: Failed\n"
    assert headrace(["mini", "status", "--wait"]) == 1
    assert capsys.readouterr().err == "headrace-mini: --wait: name the MiniCluster to wait for\n"


def test_a_status_of_an_older_specification_does_not_count(
    taking: Server, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stale = cluster(phase="Failed", exitCode=3)
    stale["metadata"]["generation"] = 2
    taking.items(CLUSTERS, stale)
    event = {"type": "MODIFIED", "object": cluster(phase="Running", ready="2/2")}
    first = taking.answers["GET", CLUSTERS]
    answers = iter([first, (200, json.dumps(event).encode() + b"\n")])
    before = taking.respond

    def respond(method: str, url: str, body: bytes) -> tuple[int, bytes]:
        if method == "GET" and urlparse(url).path == CLUSTERS:
            taking.answers["GET", CLUSTERS] = next(answers)
        return before(method, url, body)

    taking.respond = respond  # type: ignore[method-assign]
    assert headrace(["mini", "apply", "--json", file]) == 0
    out, err = capsys.readouterr()
    assert err.splitlines()[-2:] == [
        "headrace-mini: waiting for the operator of this namespace",
        "headrace-mini: Running 2/2",
    ]
    assert json.loads(out)["status"]["phase"] == "Running" and "managedFields" not in json.loads(out)["metadata"]


def test_a_refusal_is_told_in_the_servers_words(taking: Server, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    refusal = {"kind": "Status", "reason": "Invalid", "message": "spec.size: no more than 3"}
    taking.answer("PATCH", f"{CLUSTERS}/sample", refusal, 422)
    assert headrace(["mini", "apply", file]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "headrace-mini: spec.size: no more than 3"


def test_a_kind_that_the_server_does_not_know_is_told(
    server: Server, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert headrace(["mini", "apply", file]) == 1
    assert "the API server has no kind PersistentVolumeClaim in apiVersion v1" in capsys.readouterr().err


def test_miniclusters_are_listed(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.items(CLUSTERS, cluster(phase="Running", ready="2/2"), cluster("other", phase="Failed", exitCode=2))
    server.items(JOBS)
    server.items("/apis/batch/v1/jobs")
    assert headrace(["mini", "status"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["NAME", "PHASE", "READY", "SIZE", "EXIT", "REASON"],
        ["sample", "Running", "2/2", "2"],
        ["other", "Failed", "2", "2"],
    ]
    server.items("/apis/flux-framework.org/v1alpha2/miniclusters", cluster())
    assert headrace(["mini", "status", "--all-namespaces"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["team", "sample", "2"]
    assert headrace(["mini", "status", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["sample", "other"]


def test_one_minicluster_tells_all_of_itself(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    condition = {"type": "JobRunning", "status": "True", "reason": "Started", "message": "it runs"}
    status = {"jobs": {"run": 3, "sched": 0}, "times": {"requested": "T"}, "conditions": [condition]}
    server.answer("GET", f"{CLUSTERS}/sample", cluster(phase="Running", **status))
    assert headrace(["mini", "status", "sample"]) == 0
    told = {line.partition(":")[0]: line.partition(":")[2].strip() for line in capsys.readouterr().out.splitlines()}
    assert told["name"] == "team/sample" and told["jobs"] == "3 run" and told["time of requested"] == "T"
    assert told["JobRunning"] == "True  Started: it runs"


def test_who_names_no_minicluster_is_told_which_there_are(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.items(CLUSTERS, cluster("one"), cluster("two"))
    server.items(PODS)
    for line in (["status", "x"], ["scale", "x", "2"], ["delete", "x"], ["connect", "x"]):
        assert headrace(["mini", *line]) == 1
        assert "no MiniCluster x in namespace team (existing: one, two)" in capsys.readouterr().err
    server.answers.clear()
    assert headrace(["mini", "status", "x"]) == 1
    assert "does not know the kind MiniCluster" in capsys.readouterr().err


def pod(name: str, created: str = "2026-01-01T00:00:00Z", **status: Any) -> dict[str, Any]:
    """A pod with the containers sample and web; `status` is its PodStatus."""
    owners = [{"uid": "job-1", "controller": True}]
    metadata = {"name": name, "creationTimestamp": created, "ownerReferences": owners}
    return {"metadata": metadata, "spec": {"containers": [{"name": "sample"}, {"name": "web"}]}, "status": status}


def container(**state: Any) -> dict[str, Any]:
    """The PodStatus of a pod whose container sample has this state."""
    return {"containerStatuses": [{"name": "sample", "image": "nope:1", "state": state}]}


WAITING = {"message": 'container "sample" in pod "p" is waiting to start: trying and failing to pull image'}
PULLS = {"phase": "Pending", **container(waiting={"reason": "ErrImagePull", "message": "not found"})}


def test_the_log_is_of_the_newest_pod_of_the_lead(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    server.items(PODS, pod("sample-0-old", "2026-01-01T00:00:00Z"), pod("sample-0-new", "2026-01-01T00:00:05Z"))
    server.answer("GET", f"{PODS}/sample-0-new/log", b"hello\n")
    assert headrace(["mini", "logs", "sample"]) == 0
    assert capfd.readouterr().out == "hello\n"
    listed, read = server.asked
    assert listed[2]["labelSelector"] == "job-name=sample,batch.kubernetes.io/job-completion-index=0"
    assert read[2] == {"container": "sample"}


def test_the_log_of_another_pod_and_container_is_followed(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    server.items(PODS, pod("p", "2026-01-01T00:00:00Z"))
    server.answer("GET", f"{PODS}/p/log", b"hello\n")
    assert headrace(["mini", "logs", "--follow", "--pod", "2", "--group", "gpu", "--container", "web", "sample"]) == 0
    listed, read, *_ = server.asked
    assert listed[2]["labelSelector"] == "job-name=sample-gpu,batch.kubernetes.io/job-completion-index=2"
    assert read[2] == {"container": "web", "follow": "true", "timestamps": "true"}


def test_a_pod_that_there_is_not_is_told_with_the_phase(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.items(PODS)
    server.answer("GET", f"{CLUSTERS}/sample", cluster(phase="Pending", reason="short of cpu"))
    assert headrace(["mini", "logs", "sample"]) == 1
    assert "MiniCluster sample has no pod sample-0 (Pending: short of cpu)" in capsys.readouterr().err


def test_the_log_of_a_pod_that_has_not_started_says_why(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.items(PODS, pod("p", **PULLS))
    server.answer("GET", f"{PODS}/p/log", WAITING, 400)
    assert headrace(["mini", "logs", "sample"]) == 1
    assert capsys.readouterr().err == (
        "headrace-mini: container sample of pod p has not started (Pending: image nope:1 of container sample cannot be "
        "pulled (ErrImagePull): not found); headrace mini logs -f sample waits for it\n"
    )


def test_a_container_that_a_pod_does_not_have_is_told_with_those_that_there_are(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer("GET", f"{CLUSTERS}/sample", cluster(phase="Running"))
    server.items(PODS, pod("p", phase="Running", **container(running={})))
    server.answer("GET", f"{PODS}/p/log", {"message": "container other is not valid for pod p"}, 400)
    for words in (["logs", "-f"], ["connect"]):
        assert headrace(["mini", *words, "-c", "other", "sample"]) == 1
        told = "headrace-mini: pod p has no container other (existing: sample, web)\n"
        assert capsys.readouterr().err == told


def test_who_follows_a_log_hears_what_its_start_waits_for(
    server: Server, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.flux_jobs.client import containers

    monkeypatch.setattr("headrace.k8s.progress.SILENCE", 0.0)
    monkeypatch.setattr(containers, "_POLL_INTERVAL", 0.01)
    gated = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
             "message": "0/2 nodes are available: 2 Insufficient cpu."}  # fmt: skip
    listings = [(), (pod("p", phase="Pending", conditions=[gated]),), (pod("p", **PULLS),), (pod("p", **PULLS),)]
    server.first["GET", PODS] = [(200, {"metadata": {}, "items": list(items)}) for items in listings]
    server.items(PODS, pod("p", phase="Running", **container(running={})))
    server.answer("GET", f"{CLUSTERS}/sample", cluster(phase="Pending", reason="no pods"))
    no_host = {"message": "pod p does not have a host assigned"}
    server.first["GET", f"{PODS}/p/log"] = [(400, no_host), (400, WAITING), (400, WAITING)]
    server.answer("GET", f"{PODS}/p/log", b"hello\n")
    server.answer("GET", f"{PODS}/p", pod("p", phase="Succeeded", **container(terminated={"exitCode": 0})))
    assert headrace(["mini", "logs", "-f", "sample"]) == 0
    out, err = capfd.readouterr()
    assert out == "hello\n"
    assert err.splitlines() == [
        "headrace-mini: MiniCluster sample is Pending: no pods",
        "headrace-mini: container sample of pod p has not started (Pending: short of cpu on 2 nodes)",
        "headrace-mini: container sample of pod p has not started "
        "(Pending: image nope:1 of container sample cannot be pulled (ErrImagePull): not found)",
    ]


def test_the_log_of_a_pod_that_was_killed_goes_on_in_the_next(
    server: Server, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.flux_jobs.client import containers

    monkeypatch.setattr(containers, "_POLL_INTERVAL", 0.01)
    first, second = pod("p"), pod("q", "2026-01-01T00:00:09Z")
    server.first["GET", PODS] = [(200, {"metadata": {}, "items": [first]})] * 2
    server.items(PODS, first, second)
    server.answer("GET", f"{PODS}/p/log", b"begins\n")
    server.answer("GET", f"{PODS}/q/log", b"begins again, ends\n")
    server.answer("GET", f"{PODS}/p", pod("p", phase="Failed", **container(terminated={"exitCode": 143})))
    server.answer("GET", f"{PODS}/q", pod("q", phase="Succeeded", **container(terminated={"exitCode": 0})))
    server.answer("GET", f"{CLUSTERS}/sample", cluster(phase="Starting"))
    assert headrace(["mini", "logs", "-f", "sample"]) == 0
    out, err = capfd.readouterr()
    assert out == "begins\nbegins again, ends\n"
    assert err == "headrace-mini: pod p has ended, and MiniCluster sample continues in another pod\n"
    # The job of one that is over goes on nowhere.
    over = cluster(phase="Failed", exitCode=143, times={"finished": "2026-01-01T00:00:00Z"})
    server.answer("GET", f"{CLUSTERS}/sample", over)
    server.items(PODS, first)
    assert headrace(["mini", "logs", "-f", "sample"]) == 0
    assert capfd.readouterr().out == "begins\n"


RUNS = pod("p", phase="Running", **container(running={}))
SUCCEEDED = pod("p", phase="Succeeded", **container(terminated={"exitCode": 0}))


def of_logs(server: Server, name: str = "p") -> list[str]:
    """`sinceTime` of each request for a log."""
    return [query.get("sinceTime", "") for _, path, query, _ in server.asked if path == f"{PODS}/{name}/log"]


def test_a_log_that_ends_before_the_kubelet_tells_of_the_end_goes_on_in_the_next_pod(
    server: Server, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.flux_jobs.client import containers

    monkeypatch.setattr(containers, "_POLL_INTERVAL", 0.01)
    server.first["GET", PODS] = [(200, {"metadata": {}, "items": [RUNS]})]
    server.items(PODS, RUNS, pod("q", "2026-01-01T00:00:09Z"))
    server.answer("GET", f"{PODS}/p/log", b"2026-01-01T00:00:01.5Z begins\n")
    server.answer("GET", f"{PODS}/q/log", b"2026-01-01T00:00:10.5Z ends\n")
    server.first["GET", f"{PODS}/p"] = [(200, RUNS)]
    server.answer("GET", f"{PODS}/p", pod("p", phase="Failed", **container(terminated={"exitCode": 137})))
    server.answer("GET", f"{PODS}/q", pod("q", phase="Succeeded", **container(terminated={"exitCode": 0})))
    server.answer("GET", f"{CLUSTERS}/sample", cluster(phase="Starting"))
    assert headrace(["mini", "logs", "-f", "sample"]) == 0
    out, err = capfd.readouterr()
    assert out == "begins\nends\n"
    assert err == "headrace-mini: pod p has ended, and MiniCluster sample continues in another pod\n"
    assert of_logs(server) == [""], "its status came in time"


@pytest.mark.parametrize("kind", [bytes, Cut])
def test_a_stream_that_is_cut_goes_on_where_it_was(
    kind: type[bytes], server: Server, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.flux_jobs.client import containers

    monkeypatch.setattr(containers, "_POLL_INTERVAL", 0.01)
    server.items(PODS, RUNS)
    first = b"2026-01-01T00:00:01.1Z one\n2026-01-01T00:00:02.25Z two\n2026-01-01T00:00:02.5Z th"
    rest = b"2026-01-01T00:00:02.25Z two\n2026-01-01T00:00:02.5Z three\n2026-01-01T00:00:09Z four\n"
    server.first["GET", f"{PODS}/p/log"] = [(200, kind(first)), (400, WAITING), (500, {"message": "no node"})]
    server.answer("GET", f"{PODS}/p/log", rest)
    server.first["GET", f"{PODS}/p"] = [(200, RUNS)] * 6
    server.answer("GET", f"{PODS}/p", SUCCEEDED)
    assert headrace(["mini", "logs", "-f", "sample"]) == 0
    assert capfd.readouterr() == ("one\ntwo\nthree\nfour\n", "")
    assert of_logs(server) == ["", *["2026-01-01T00:00:02Z"] * 3]


def test_a_pod_on_a_node_that_is_lost_is_not_read_for_ever(
    server: Server, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is being deleted and says that it runs, until its node comes back."""
    from headrace.flux_jobs.client import containers

    monkeypatch.setattr("headrace.k8s.progress.SILENCE", 0.0)
    monkeypatch.setattr(containers, "_POLL_INTERVAL", 0.01)
    going = {**RUNS, "metadata": {**RUNS["metadata"], "deletionTimestamp": "2026-01-01T00:00:05Z"}}
    server.first["GET", PODS] = [(200, {"metadata": {}, "items": [RUNS]})]
    server.items(PODS, going, pod("q", "2026-01-01T00:00:09Z"))
    server.first["GET", f"{PODS}/p/log"] = [(200, b"2026-01-01T00:00:01Z begins\n")]
    server.answer("GET", f"{PODS}/p/log", {"message": "no route to its node"}, 500)
    server.answer("GET", f"{PODS}/q/log", b"ends\n")
    server.first["GET", f"{PODS}/p"] = [(200, RUNS)] * 4
    server.answer("GET", f"{PODS}/p", going)
    server.answer("GET", f"{PODS}/q", pod("q", phase="Succeeded", **container(terminated={"exitCode": 0})))
    server.answer("GET", f"{CLUSTERS}/sample", cluster(phase="Starting"))
    assert headrace(["mini", "logs", "-f", "sample"]) == 0
    out, err = capfd.readouterr()
    assert out == "begins\nends\n"
    assert err.splitlines() == [
        "headrace-mini: no route to its node",
        "headrace-mini: pod p has ended, and MiniCluster sample continues in another pod",
    ]


def test_a_log_whose_reader_loses_the_right_to_it_ends_with_the_refusal(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.flux_jobs.client import containers

    monkeypatch.setattr(containers, "_POLL_INTERVAL", 0.01)
    server.items(PODS, RUNS)
    server.answer("GET", f"{PODS}/p", RUNS)
    server.first["GET", f"{PODS}/p/log"] = [(200, b"")]
    server.answer("GET", f"{PODS}/p/log", {"message": "may not"}, 403)
    assert headrace(["mini", "logs", "-f", "sample"]) == 1
    assert capsys.readouterr().err == "headrace-mini: may not\n"


def test_a_pod_that_failed_without_a_word_of_its_container_is_followed_by_the_next(
    server: Server, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.flux_jobs.client import containers

    monkeypatch.setattr(containers, "_POLL_INTERVAL", 0.01)
    evicted = pod("p", phase="Failed", reason="Evicted")
    server.first["GET", PODS] = [(200, {"metadata": {}, "items": [RUNS]})]
    server.items(PODS, evicted, pod("q", "2026-01-01T00:00:09Z"))
    server.answer("GET", f"{PODS}/p/log", b"begins\n")
    server.answer("GET", f"{PODS}/q/log", b"ends\n")
    server.answer("GET", f"{PODS}/p", evicted)
    server.answer("GET", f"{PODS}/q", pod("q", phase="Succeeded", **container(terminated={"exitCode": 0})))
    server.answer("GET", f"{CLUSTERS}/sample", cluster(phase="Starting"))
    assert headrace(["mini", "logs", "-f", "sample"]) == 0
    assert capfd.readouterr().out == "begins\nends\n"


def test_a_log_that_will_never_be_is_not_waited_for(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.items(PODS)
    server.answer("GET", f"{CLUSTERS}/sample", cluster(phase="Failed", reason="too late"))
    assert headrace(["mini", "logs", "-f", "sample"]) == 1
    assert "MiniCluster sample has no pod sample-0 (Failed: too late)" in capsys.readouterr().err
    server.items(PODS, pod("p", phase="Failed", reason="Evicted", **container(waiting={})))
    server.answer("GET", f"{PODS}/p/log", WAITING, 400)
    assert headrace(["mini", "logs", "-f", "sample"]) == 1
    assert "container sample of pod p has not started (Failed: Evicted), and has ended without it" in (
        capsys.readouterr().err
    )


def test_connect_says_of_one_that_has_ended_that_nothing_is_left(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    over = cluster(phase="Failed", exitCode=3, times={"finished": "2026-01-01T00:00:00Z"})
    server.answer("GET", f"{CLUSTERS}/sample", over)
    told = "MiniCluster sample has ended (Failed, exit code 3), and no broker is running: "
    again = "to run it again, headrace mini delete sample, then apply it\n"
    server.items(PODS, pod("p", phase="Failed", **container(terminated={"exitCode": 3})))
    assert headrace(["mini", "connect", "sample"]) == 1
    assert capsys.readouterr().err == f"headrace-mini: {told}headrace mini logs sample shows what it wrote; {again}"
    server.items(PODS)
    assert headrace(["mini", "connect", "sample"]) == 1
    assert capsys.readouterr().err == f"headrace-mini: {told}{again}"


def test_connect_says_of_one_that_has_not_started_when_it_will_work(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer("GET", f"{CLUSTERS}/sample", cluster(phase="Starting", ready="0/2"))
    server.items(PODS, pod("p", **PULLS))
    assert headrace(["mini", "connect", "sample"]) == 1
    told = capsys.readouterr().err
    assert "container sample of pod p has not started (Pending: image nope:1" in told
    assert told.endswith("; connect when headrace mini status sample shows Running\n")
    server.items(PODS, pod("p", phase="Running", **container(running={})))
    server.answer("GET", f"{PODS}/p/exec", {"message": "no"}, 403)
    assert headrace(["mini", "connect", "sample", "flux", "uptime"]) == 1
    assert "MiniCluster sample is Starting 0/2: its broker may not be running yet" in capsys.readouterr().err


def test_connect_asks_for_the_command_in_the_pods_broker(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answer("GET", f"{CLUSTERS}/sample", cluster())
    server.items(PODS, pod("p", containerStatuses=[{"name": "web", "state": {"running": {}}}]))
    server.answer("GET", f"{PODS}/p/exec", {"message": "no"}, 403)
    assert (
        headrace(["mini", "connect", "--pod", "1", "--group", "g", "--container", "web", "sample", "flux", "jobs"]) == 1
    )
    assert "exec of p" in capsys.readouterr().err
    _, path, query, _ = server.asked[-1]
    assert path == f"{PODS}/p/exec"
    # Of the words of the command `query` keeps the first.
    assert query == {"container": "web", "command": "/mnt/flux/view/bin/flux", **dict.fromkeys(STREAMS, "true")}


def test_the_size_goes_through_the_scale_subresource(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answer("GET", f"{CLUSTERS}/sample", cluster())
    server.answer("PATCH", f"{CLUSTERS}/sample/scale", {"spec": {"replicas": 4}})
    assert headrace(["mini", "scale", "sample", "4"]) == 0
    assert server.last("PATCH")[2] == {"spec": {"replicas": 4}}
    assert capsys.readouterr().out == "MiniCluster/sample scaled to 4\n"


def test_a_size_above_the_largest_is_told_with_both_and_with_the_way_to_raise_it(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    one = cluster()
    one["spec"]["maxSize"] = 3
    server.answer("GET", f"{CLUSTERS}/sample", one)
    assert headrace(["mini", "scale", "sample", "5"]) == 1
    assert capsys.readouterr().err == (
        "headrace-mini: size 5 is above the maxSize of MiniCluster sample, 3: raise spec.maxSize first, in its file or "
        'by kubectl patch minicluster sample -n team --type merge -p \'{"spec": {"maxSize": 5}}\'\n'
    )
    assert all(method == "GET" for method, *_ in server.asked)


def test_the_plugin_speaks_of_itself_by_its_own_name(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((program, "command"), (main, "PREFIX")):
        # Put back after the test.
        monkeypatch.setattr(module, name, getattr(module, name))
    over = cluster(phase="Finished", exitCode=0, times={"finished": "2026-01-01T00:00:00Z"})
    server.answer("GET", f"{CLUSTERS}/sample", over)
    said = []
    for words in (["scale", "sample", "3"], ["scale", "sample"], ["--help"]):
        monkeypatch.setattr("sys.argv", ["kubectl-minicluster", *words])
        main.kubectl()
        said.append("".join(capsys.readouterr()))
    assert said[0].startswith("kubectl-minicluster: MiniCluster sample has ended (exit code 0)")
    assert said[0].endswith(": kubectl minicluster delete sample, then apply it\n")
    assert said[1].startswith("usage: kubectl minicluster scale") and "kubectl minicluster scale: error" in said[1]
    assert "headrace" not in "".join(said)


def test_only_the_minicluster_that_was_seen_is_deleted(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answer("GET", f"{CLUSTERS}/sample", cluster())
    server.answer("DELETE", f"{CLUSTERS}/sample", {})
    server.items(CLUSTERS)
    server.items(PODS)
    assert headrace(["mini", "delete", "sample"]) == 0
    assert server.last("DELETE")[2]["preconditions"] == {"uid": "u1"}
    assert headrace(["mini", "delete", "--no-wait", "sample"]) == 0
    assert server.asked[-1][0] == "DELETE"
    assert capsys.readouterr().out == "MiniCluster/sample deleted\n" * 2


def test_of_several_those_that_exist_are_deleted(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answer("GET", f"{CLUSTERS}/sample", cluster())
    server.answer("DELETE", f"{CLUSTERS}/sample", {})
    server.items(CLUSTERS)
    server.items(PODS)
    assert headrace(["mini", "delete", "nobody", "sample"]) == 1
    told = capsys.readouterr()
    assert told.out == "MiniCluster/sample deleted\n"
    assert "no MiniCluster nobody in namespace" in told.err


def test_a_deletion_waits_for_the_pods_and_says_so(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.minicluster.client import clusters as client

    monkeypatch.setattr("headrace.k8s.progress.SILENCE", 0.0)
    monkeypatch.setattr(client, "_PODS_PERIOD", 0.01)
    server.answer("GET", f"{CLUSTERS}/sample", cluster())
    server.answer("DELETE", f"{CLUSTERS}/sample", {})
    server.items(CLUSTERS)
    namesake = pod("new")
    namesake["metadata"]["ownerReferences"][0]["uid"] = "job-2"
    listings = [(pod("a"), pod("b")), (pod("a"), pod("b")), (pod("a"), namesake), (pod("a"),)]
    server.first["GET", PODS] = [(200, {"metadata": {}, "items": list(pods)}) for pods in listings]
    server.items(PODS, namesake)
    assert headrace(["mini", "delete", "sample"]) == 0
    out, err = capsys.readouterr()
    assert out == "MiniCluster/sample deleted\n"
    assert err.splitlines() == [
        "headrace-mini: MiniCluster sample is being deleted",
        "headrace-mini: 2 pods of sample to end",
        "headrace-mini: 1 pod of sample to end",
    ]
    listed = next(query for _, path, query, _ in server.asked if path == PODS)
    assert listed["labelSelector"] == "flux-framework.org/minicluster=sample"


SAVE = "flux-framework.org/headrace-save"


def test_a_deletion_that_waits_for_the_operator_says_what_to_do_without_one(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr("headrace.k8s.progress.SILENCE", 0.0)
    server.answer("DELETE", f"{CLUSTERS}/sample", {})
    server.items(CLUSTERS)
    server.items(PODS)
    told = []
    for finalizers in ([SAVE], ["a.example/b", "c.example/d"]):
        one = cluster()
        one["metadata"]["finalizers"] = finalizers
        server.answer("GET", f"{CLUSTERS}/sample", one)
        assert headrace(["mini", "delete", "sample"]) == 0
        told.append(capsys.readouterr().err)
    assert told[0] == (
        "headrace-mini: MiniCluster sample waits until the operator has saved its queue (at most a minute; if no "
        "operator runs: headrace mini delete --without-saving sample)\n"
    )
    assert told[1].endswith("sample waits for its finalizers to be removed (a.example/b, c.example/d)\n")


def test_without_saving_our_finalizer_goes_and_those_of_others_stay(server: Server) -> None:
    one = cluster()
    one["metadata"].update(finalizers=["a.example/b", SAVE], resourceVersion="7")
    server.answer("GET", f"{CLUSTERS}/sample", one)
    server.answer("DELETE", f"{CLUSTERS}/sample", {})
    server.items(PODS)
    server.first["PATCH", f"{CLUSTERS}/sample"] = [(409, {"kind": "Status", "message": "changed"})]
    server.answer("PATCH", f"{CLUSTERS}/sample", {})
    assert headrace(["mini", "delete", "--no-wait", "--without-saving", "sample"]) == 0
    patch = {"uid": "u1", "resourceVersion": "7", "finalizers": ["a.example/b"]}
    assert [body for verb, _, _, body in server.asked if verb == "PATCH"] == [{"metadata": patch}] * 2
    verbs = [verb for verb, *_ in server.asked]
    assert verbs.index("DELETE") < verbs.index("PATCH"), "an operator sets it again on what is not being deleted"


def test_a_deletion_that_was_broken_off_is_waited_for_again(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.minicluster.client import clusters as client

    monkeypatch.setattr(client, "_PODS_PERIOD", 0.01)
    server.items(CLUSTERS)
    server.items(JOBS)
    listing = (200, {"metadata": {}, "items": [pod("a")]})
    server.first["GET", PODS] = [listing, listing]
    server.items(PODS)
    assert headrace(["mini", "delete", "sample"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (
        "MiniCluster/sample deleted\n",
        "headrace-mini: MiniCluster sample is being deleted already\n",
    )
    assert not [one for one in server.asked if one[0] == "DELETE"]


def test_pods_that_were_to_stay_without_their_minicluster_are_not_waited_for(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.items(CLUSTERS)
    server.items(PODS, pod("a"))
    server.items(JOBS, {"metadata": {"name": "sample", "uid": pod("a")["metadata"]["ownerReferences"][0]["uid"]}})
    assert headrace(["mini", "delete", "sample"]) == 1
    assert "no MiniCluster sample in namespace team (existing: none)" in capsys.readouterr().err


def test_who_may_not_list_pods_can_delete(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answer("GET", f"{CLUSTERS}/sample", cluster())
    server.answer("DELETE", f"{CLUSTERS}/sample", {})
    server.items(CLUSTERS)
    server.answer("GET", PODS, {"kind": "Status", "message": "may not"}, 403)
    assert headrace(["mini", "delete", "sample"]) == 0
    assert capsys.readouterr().out == "MiniCluster/sample deleted\n"


def test_the_namespace_and_the_context_can_be_chosen(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.items(CLUSTERS.replace("team", "other"), cluster())
    server.items(JOBS.replace("team", "other"))
    assert headrace(["mini", "status", "--namespace", "other"]) == 0
    capsys.readouterr()
    assert headrace(["mini", "status", "--context", "away"]) == 1
    assert capsys.readouterr().err == (
        "headrace-mini: the API server http://127.0.0.1:9: Connection refused (list miniclusters): check "
        "that the cluster runs, and that KUBECONFIG, --kubeconfig or --context select the right one\n"
    )
    assert headrace(["mini", "status", "--context", "nowhere"]) == 1
    assert "no context 'nowhere' (existing: here, away)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "headrace mini apply --namespace n --kubeconfig none --context c FILE",
        "headrace mini status --kubeconfig none",
        "headrace mini logs --namespace n --kubeconfig none --context c sample",
        "headrace mini connect --namespace n --kubeconfig none --context c sample",
        "headrace mini connect --web --local-port 0 --kubeconfig none sample",
        "headrace mini scale --namespace n --kubeconfig none --context c sample 2",
        "headrace mini delete --namespace n --kubeconfig none --context c sample",
    ],
)
def test_without_a_kubeconfig_it_is_told_what_was_looked_for(
    line: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert headrace(line.replace("FILE", file).split()[1:]) == 1
    assert "no kubeconfig: none does not exist" in capsys.readouterr().err


# --- Jobs that are clusters


def labelled(name: str = "hello", told: str = "", **status: Any) -> dict[str, Any]:
    found = flux_job(job(name=name), Images(), "0123456789")
    annotations = {STATUS_ANNOTATION: told} if told else {}
    meta = {"namespace": "team", "uid": "u9", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
    found["metadata"] = {**found["metadata"], **meta, "annotations": annotations}
    return {**found, "status": status}


FAILED = {"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z"}]}


def test_status_of_a_job_is_that_of_its_cluster(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answer("GET", f"{JOBS}/hello", labelled(told='{"exit": 3, "reason": "why", "times": {}}', **FAILED))
    assert headrace(["mini", "status", "job/hello"]) == 0
    out = capsys.readouterr().out
    assert [line.split(maxsplit=1) for line in out.splitlines()][:4] == [
        ["name:", "team/hello"],
        ["phase:", "Failed"],
        ["reason:", "why"],
        ["size:", "2"],
    ]
    server.items(JOBS, labelled(told='{"exit": 3, "reason": "why", "times": {}}', **FAILED))
    assert headrace(["mini", "status", "--wait", "--json", "job/hello"]) == 3
    assert json.loads(capsys.readouterr().out)["status"]["exitCode"] == 3


def test_a_job_that_does_not_start_has_the_last_warning_as_its_reason(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    job = labelled(ready=0)
    server.answer("GET", f"{JOBS}/hello", job)
    server.items(JOBS, job)
    moments = {"refused by a policy": "2026-01-01T00:00:02Z", "an older one": "2026-01-01T00:00:01Z"}
    about = {"uid": job["metadata"]["uid"]}
    events = [{"message": text, "lastTimestamp": at, "involvedObject": about} for text, at in moments.items()]
    server.items(CLUSTERS)
    server.items("/api/v1/namespaces/team/events", *events)
    for command in (["job/hello"], []):
        assert headrace(["mini", "status", *command]) == 0
        assert "refused by a policy" in capsys.readouterr().out
    server.answer("GET", "/api/v1/namespaces/team/events", {"message": "no"}, 403)
    assert headrace(["mini", "status", "job/hello"]) == 0
    assert "reason" not in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
def test_a_cluster_is_found_by_the_object_that_its_job_belongs_to(
    server: Server, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    server.items(JOBS, labelled("train-node-0", ready=2))
    assert headrace(["mini", "status", f"{kind}/train"]) == 0
    assert "team/train-node-0" in capsys.readouterr().out
    assert server.last("GET")[1]["labelSelector"] == (
        "jobset.sigs.k8s.io/jobset-name=train,flux-framework.org/headrace-cluster"
    )


def test_labelled_jobs_are_listed_as_they_are_named(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    unseen = {**labelled("unseen"), "spec": {"parallelism": 1, "template": {"spec": {}}}}
    unseen["metadata"]["labels"] = {LABEL_KEY: LABEL_VALUE}
    server.items(CLUSTERS, cluster(phase="Running", ready="2/2"))
    server.items(JOBS, labelled(told='{"exit": 3, "reason": "why", "times": {}}', **FAILED), unseen)
    assert headrace(["mini", "status"]) == 0
    assert [line.split(maxsplit=5) for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["sample", "Running", "2/2", "2"],
        ["job/hello", "Failed", "0/2", "2", "3", "why"],
        ["job/unseen", "Invalid", "0/1", "1", "the", "operator's webhook did not see this Job when it was created"],
    ]
    assert server.last("GET")[1]["labelSelector"] == "flux-framework.org/headrace=cluster"
    assert headrace(["mini", "status", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["kind"], one["name"]) for one in told] == [
        ("MiniCluster", "sample"),
        ("Job", "hello"),
        ("Job", "unseen"),
    ]
    # Who may not list Jobs has the MiniClusters.
    server.answer("GET", JOBS, {"message": "no"}, 403)
    assert headrace(["mini", "status"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["sample  Running  2/2    2"]


@pytest.mark.parametrize("name", ["foo/x", "pod/x", "jobs/x", "job/", "/x", "job/a/b", "minicluster/x"])
def test_a_kind_that_names_no_cluster_is_told_with_those_that_do(
    server: Server, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    known = "use NAME for a MiniCluster, or job/NAME or jobset/NAME or trainjob/NAME"
    for line in (["status", name], ["logs", name], ["connect", name], ["scale", name, "2"], ["delete", name]):
        assert headrace(["mini", *line]) == 1
        assert capsys.readouterr().err == f"headrace-mini: {name} does not name a cluster: {known}\n"
    assert server.asked == []


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["delete", "job/hello"], "deletes only MiniClusters; use kubectl delete job hello -n team"),
        (["delete", "trainjob/hello"], "deletes only MiniClusters; use kubectl delete trainjob hello -n team"),
        (
            ["scale", "job/hello", "4"],
            "scales only MiniClusters; kubectl patch job hello -n team --type merge -p "
            """'{"spec": {"parallelism": 4, "completions": 4}}'""",
        ),
        (
            ["scale", "job/hello", "0"],
            "scales only MiniClusters; kubectl patch job hello -n team --type merge -p "
            """'{"spec": {"suspend": true}}'""",
        ),
        (
            ["scale", "jobset/hello", "4"],
            "scales only MiniClusters; delete it, and create it with the size 4 in its file",
        ),
    ],
)
def test_what_only_miniclusters_can_is_told_with_what_does_it_for_a_job(
    server: Server, capsys: pytest.CaptureFixture[str], words: list[str], instead: str
) -> None:
    assert headrace(["mini", *words]) == 1
    assert capsys.readouterr().err == f"headrace-mini: {words[1]}: this command {instead}\n"
    assert server.asked == []


def test_of_several_miniclusters_go_where_a_job_is_named_too(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer("GET", f"{CLUSTERS}/sample", cluster())
    server.answer("DELETE", f"{CLUSTERS}/sample", {})
    server.items(PODS)
    assert headrace(["mini", "delete", "--no-wait", "job/hello", "sample"]) == 1
    assert capsys.readouterr().out == "MiniCluster/sample deleted\n"


def test_a_job_that_is_no_cluster_has_no_broker_to_connect_to(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    ordinary = {**labelled(), "spec": {"parallelism": 2, "template": {"spec": {"containers": [{"name": "main"}]}}}}
    server.items(PODS, pod("p", **container(running={})))
    for labels, why in (
        ({}, "an ordinary Job, without the label flux-framework.org/headrace: cluster"),
        ({LABEL_KEY: LABEL_VALUE}, "the operator's webhook did not see this Job when it was created"),
    ):
        server.answer("GET", f"{JOBS}/hello", {**ordinary, "metadata": {**ordinary["metadata"], "labels": labels}})
        assert headrace(["mini", "connect", "job/hello", "flux", "jobs"]) == 1
        assert capsys.readouterr().err == (
            f"headrace-mini: Job hello is not a cluster (Invalid: {why}) and has no broker: delete it, and create it "
            "with the label while the operator's webhook answers\n"
        )
    assert [path for _, path, *_ in server.asked if path.endswith("exec")] == []


def test_a_job_that_is_no_cluster_is_told_with_those_that_are(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.items(JOBS, labelled("other"))
    assert headrace(["mini", "logs", "job/hello"]) == 1
    assert "no cluster job/hello in namespace team (existing: job/other)" in capsys.readouterr().err


def test_logs_of_a_job_are_those_of_the_container_with_the_broker(
    server: Server, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    server.answer("GET", f"{JOBS}/hello", labelled())
    server.items(PODS, {"metadata": {"name": "hello-0-x", "creationTimestamp": "2026-01-01T00:00:00Z"}})
    server.answer("GET", f"{PODS}/hello-0-x/log", b"hello\n")
    assert headrace(["mini", "logs", "job/hello"]) == 0
    assert capfdbinary.readouterr().out == b"hello\n"
    assert server.last("GET")[1]["container"] == "main"
    assert headrace(["mini", "logs", "-g", "gpu", "job/hello"]) == 1
    assert b"only MiniClusters have groups" in capfdbinary.readouterr().err


def test_a_job_that_has_ended_is_not_connected_to(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answer(
        "GET", f"{JOBS}/hello", labelled(told='{"exit": 3, "reason": "why", "times": {"finished": "x"}}', **FAILED)
    )
    server.items(PODS)
    assert headrace(["mini", "connect", "job/hello"]) == 1
    assert "Job hello has ended (Failed, exit code 3)" in capsys.readouterr().err


def test_hpa_writes_an_autoscaler_on_the_demand_of_the_queue(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer("GET", f"{CLUSTERS}/sample", cluster())
    bounds = ["--min=1", "--max=4", "--idle=30"]
    assert headrace(["mini", "hpa", "--dry-run", "--namespace=team", "--context=here", *bounds, "sample"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["spec"]["minReplicas"], printed["spec"]["maxReplicas"]) == (1, 4)
    assert not [one for one in server.asked if one[0] == "PATCH"]
    resources = [{"name": "horizontalpodautoscalers", "kind": "HorizontalPodAutoscaler", "namespaced": True}]
    server.answer("GET", "/apis/autoscaling/v2", {"resources": resources})
    where = "/apis/autoscaling/v2/namespaces/team/horizontalpodautoscalers/sample"
    server.answer("PATCH", where, printed)
    here = os.environ["KUBECONFIG"]
    assert headrace(["mini", "hpa", "--min=1", "--max=4", "--idle=30", "--kubeconfig", here, "sample"]) == 0
    assert capsys.readouterr().out == "HorizontalPodAutoscaler/sample: 1 to 4 pods\n"
    assert server.last("PATCH")[2] == printed


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--min", "3", "sample"], "the smallest size must be from 1 to the largest, 2, not 3"),
        (["job/sample"], "job/sample is not a MiniCluster"),
        (["absent"], "does not know the kind MiniCluster"),
    ],
)
def test_hpa_says_what_it_cannot_size(
    server: Server, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer("GET", f"{CLUSTERS}/sample", cluster())
    assert headrace(["mini", "hpa", *words]) == 1
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        ("hpa sample --max 0", 2, "'0' is not a whole number from 1 to 100000"),
        ("hpa sample --max 100001", 2, "'100001' is not a whole number from 1 to 100000"),
        ("hpa sample --min -1", 2, "'-1' is not a whole number from 1 to 100000"),
        ("hpa sample --min 5 --max 4", 1, "--min 5 is above --max 4"),
        ("hpa sample --idle -1", 2, "'-1' is not a whole number from 0 to 3600"),
        ("hpa sample --idle 3601", 2, "'3601' is not a whole number from 0 to 3600"),
        ("hpa job/sample", 1, "job/sample is not a MiniCluster"),
        *(
            (f"{command} {more}", 2, "'Bad_Name' is not a valid name")
            for command in ("hpa", "logs", "status", "connect -n x")
            for more in ("Bad_Name", "--namespace Bad_Name x")
        ),
        ("scale Bad_Name 1", 2, "'Bad_Name' is not a valid name"),
        ("status job/Bad_Name", 2, "'job/Bad_Name' is not a valid name"),
    ],
)
def test_options_are_looked_at_before_a_cluster_is_looked_for(
    words: str,
    status: int,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert headrace(["mini", *words.split()]) == status
    assert why in capsys.readouterr().err


def test_the_most_pods_of_an_autoscaler_are_those_of_a_minicluster() -> None:
    assert change.MOST_PODS == fields.MOST_PODS
