"""What the commands of `headrace mini` ask an API server for, and what they say of its answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
import yaml

from headrace.cli.main import headrace

CLUSTERS = "/apis/flux-framework.org/v1alpha2/namespaces/team/miniclusters"
PODS = "/api/v1/namespaces/team/pods"
STREAMS = ("stdin", "stdout", "stderr")


def cluster(name: str = "sample", **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team", "uid": "u1", "generation": 1, "managedFields": []}
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": metadata}
    return {**head, "spec": {"size": 2, "containers": [{}]}, "status": {"observedGeneration": 1, **status}}


class Server:
    """An API server that answers by method and path; `asked` has (method, path, query, body) of each request."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], tuple[int, Any]] = {}
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []

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
        status, found = self.answers.get((method, place.path), missing)
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
            self.send_header("Content-Length", str(len(answer)))
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
    assert headrace(["mini", "apply", "--no-wait", file]) == 0
    assert told in capsys.readouterr().err


def test_a_conflict_names_the_option_that_resolves_it(
    taking: Server, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = {"kind": "Status", "reason": "Conflict", "message": "conflict with another manager: .spec.size"}
    taking.answer("PATCH", f"{CLUSTERS}/sample", refusal, 409)
    assert headrace(["mini", "apply", file]) == 1
    assert "conflict with another manager: .spec.size (--force takes these fields over)" in capsys.readouterr().err


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
    assert err.splitlines()[-2:] == ["headrace-mini: waiting for the operator", "headrace-mini: Running 2/2"]
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
    assert "the API server knows no PersistentVolumeClaim of v1" in capsys.readouterr().err


def test_miniclusters_are_listed(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.items(CLUSTERS, cluster(phase="Running", ready="2/2"), cluster("other", phase="Failed", exitCode=2))
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
    for line in (["status", "x"], ["scale", "x", "2"], ["delete", "x"], ["connect", "x"]):
        assert headrace(["mini", *line]) == 1
        assert "no MiniCluster x in namespace team (there: one, two)" in capsys.readouterr().err
    server.answers.clear()
    assert headrace(["mini", "status", "x"]) == 1
    assert "does not know the kind MiniCluster" in capsys.readouterr().err


def pod(name: str, created: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "creationTimestamp": created}}


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
    listed, read = server.asked
    assert listed[2]["labelSelector"] == "job-name=sample-gpu,batch.kubernetes.io/job-completion-index=2"
    assert read[2] == {"container": "web", "follow": "true"}


def test_a_pod_that_there_is_not_is_told_with_the_phase(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.items(PODS)
    server.answer("GET", f"{CLUSTERS}/sample", cluster(phase="Pending", reason="short of cpu"))
    assert headrace(["mini", "logs", "sample"]) == 1
    assert "MiniCluster sample has no pod sample-0 (Pending: short of cpu)" in capsys.readouterr().err


def test_connect_asks_for_the_command_in_the_pods_broker(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answer("GET", f"{CLUSTERS}/sample", cluster())
    server.items(PODS, pod("p", "2026-01-01T00:00:00Z"))
    server.answer("GET", f"{PODS}/p/exec", {"message": "no"}, 403)
    assert (
        headrace(["mini", "connect", "--pod", "1", "--group", "g", "--container", "c", "sample", "flux", "jobs"]) == 1
    )
    assert "exec of p" in capsys.readouterr().err
    _, path, query, _ = server.asked[-1]
    assert path == f"{PODS}/p/exec"
    # Of the words of the command `query` keeps the first.
    assert query == {"container": "c", "command": "/mnt/flux/view/bin/flux", **dict.fromkeys(STREAMS, "true")}


def test_the_size_goes_through_the_scale_subresource(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answer("GET", f"{CLUSTERS}/sample", cluster())
    server.answer("PATCH", f"{CLUSTERS}/sample/scale", {"spec": {"replicas": 4}})
    assert headrace(["mini", "scale", "sample", "4"]) == 0
    assert server.last("PATCH")[2] == {"spec": {"replicas": 4}}
    assert capsys.readouterr().out == "MiniCluster/sample scaled to 4\n"


def test_only_the_minicluster_that_was_seen_is_deleted(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answer("GET", f"{CLUSTERS}/sample", cluster())
    server.answer("DELETE", f"{CLUSTERS}/sample", {})
    server.items(CLUSTERS)
    assert headrace(["mini", "delete", "sample"]) == 0
    assert server.last("DELETE")[2]["preconditions"] == {"uid": "u1"}
    assert headrace(["mini", "delete", "--no-wait", "sample"]) == 0
    assert server.asked[-1][0] == "DELETE"
    assert capsys.readouterr().out == "MiniCluster/sample deleted\n" * 2


def test_the_namespace_and_the_context_can_be_chosen(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.items(CLUSTERS.replace("team", "other"), cluster())
    assert headrace(["mini", "status", "--namespace", "other"]) == 0
    capsys.readouterr()
    assert headrace(["mini", "status", "--context", "away"]) == 1
    assert "127.0.0.1:9" in capsys.readouterr().err
    assert headrace(["mini", "status", "--context", "nowhere"]) == 1
    assert "no context 'nowhere' (there are: here, away)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "headrace mini apply --namespace n --kubeconfig none --context c FILE",
        "headrace mini status --kubeconfig none",
        "headrace mini logs --namespace n --kubeconfig none --context c sample",
        "headrace mini connect --namespace n --kubeconfig none --context c sample",
        "headrace mini scale --namespace n --kubeconfig none --context c sample 2",
        "headrace mini delete --namespace n --kubeconfig none --context c sample",
    ],
)
def test_without_a_kubeconfig_it_is_told_what_was_looked_for(
    line: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert headrace(line.replace("FILE", file).split()[1:]) == 1
    assert "no kubeconfig: none is not there" in capsys.readouterr().err
