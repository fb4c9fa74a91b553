"""The OpenAPI document of `/v2`: the file that is kept, answers against its schemas, and a client generated from it."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.service.conftest import Group, serving

from headrace.service.rest.v2 import openapi
from waiting import until


def test_the_kept_document_is_that_of_the_routes(client: Any) -> None:
    assert openapi.KEPT.read_text() == openapi.text(), "python -m headrace.service.rest.v2.openapi writes it anew"
    assert client.get("/v2/openapi.json").json() == json.loads(openapi.text())


def test_each_field_is_described() -> None:
    paths = openapi.document()["paths"]
    names = {one["name"] for one in paths["/v2/jobs"]["get"]["parameters"]}
    assert {"state", "user", "queue", "name", "since", "before", "limit", "cursor", "sort", "fields"} <= names
    schemas = openapi.document()["components"]["schemas"]
    assert "cores_per_task" in schemas["Submission"]["properties"]
    assert "jobspec" in schemas["JobspecSubmission"]["properties"]
    assert all(operation["summary"] for path in paths.values() for operation in path.values())


def test_an_operation_is_called_after_what_it_does_and_says_what_it_answers() -> None:
    names = []
    for operations in openapi.document()["paths"].values():
        for operation in operations.values():
            names.append(operation["operationId"])
            done = {status: one for status, one in operation["responses"].items() if status.startswith("2")}
            assert done and all("schema" in kind for one in done.values() for kind in one.get("content", {}).values())
    assert len(names) == len({*names}) and all(re.fullmatch("[a-z_]+", name) and "v2" not in name for name in names)


def test_each_answer_is_as_its_schema_says(group: Group) -> None:
    client, document = group.client("boss.x"), openapi.document()
    made = client.post("/v2/jobs", json={"command": "echo hello", "name": "described"}).json()["id"]
    waits = client.post("/v2/jobs", json={"command": "true", "urgency": "hold"}).json()["id"]
    group.instance.flux("job", "wait-event", made, "clean")
    token = client.post("/v2/tokens", json={"note": "short"}).json()["id"]
    jobs = [f"/v2/jobs/{id}{rest}" for id in (made, waits) for rest in ("", "/jobspec", "/eventlog")]
    jobs += [f"/v2/jobs/{waits}/priority"]
    asked = ["/v2/jobs?fields=id,why,annotations", *jobs, f"/v2/jobs/{made}/R", "/v2/statistics?bin=1h"]
    requests: list[tuple[str, str, Any]] = [("get", path, None) for path in (*_read_without_parts(document), *asked)]
    requests += [
        ("post", "/v2/jobs", {"command": "true"}),
        ("post", "/v2/jobs?dry_run=true", {"command": "true"}),
        ("post", f"/v2/jobs/{made}/resubmit", {}),
        ("post", f"/v2/jobs/{waits}/update", {"duration": 60}),
        ("post", f"/v2/jobs/{waits}/urgency", {"urgency": "hold"}),
        ("post", f"/v2/jobs/{waits}/cancel", {}),
        ("post", "/v2/users", {"name": "described.x", "password": "a password of users"}),
        ("post", "/v2/users/described.x", {"admin": True}),
        ("post", "/v2/banks/physics/users", {"user": "described.x"}),
        ("post", "/v2/banks/physics/users/described.x", {"max_nodes": None}),
        ("delete", "/v2/banks/physics/users/described.x", None),
        ("post", "/v2/banks/physics", {"shares": 3}),
        ("post", "/v2/tokens", {}),
        ("delete", f"/v2/tokens/{token}", None),
        ("delete", "/v2/users/described.x", None),
        ("get", "/v2/experiments/study", None),
        ("get", "/v2/jobs/fNoSuchJob", None),
        ("post", "/v2/jobs", {"tasks": 0, "nodes": 0}),
    ]
    seen = set()
    for method, path, body in requests:
        answer = client.request(method, path, **({} if body is None else {"json": body}))
        operation = _operation(document, method, path.partition("?")[0])
        found = operation["responses"].get(str(answer.status_code), operation["responses"]["default"])
        if "content" not in found:
            assert not answer.content
        else:
            ((kind, content),) = found["content"].items()
            assert answer.headers["content-type"] == kind
            schema = {**content["schema"], "components": document["components"]}
            jsonschema.validate(answer.json(), schema, jsonschema.Draft202012Validator)
        if answer.is_success:
            seen.add(operation["operationId"])
    left = {one["operationId"] for path in document["paths"].values() for one in path.values()} - seen
    # The first needs a job that runs, the others answer no JSON. Other operations need a request above.
    assert left == {"kill_job", "get_job_output", "follow_events", "follow_job_events"}


def _read_without_parts(document: dict[str, Any]) -> list[str]:
    """The paths without parts in braces whose GET answers JSON: asked as they are."""
    reads = {path: one["get"]["responses"]["200"] for path, one in document["paths"].items() if "get" in one}
    return [path for path, done in reads.items() if "{" not in path and "application/json" in done.get("content", ())]


def _operation(document: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    """The operation that a request is for; a path without parts in braces comes first."""
    for pattern in sorted(document["paths"], key=lambda text: text.count("{")):
        operation: dict[str, Any] | None = document["paths"][pattern].get(method)
        if operation and re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", pattern), path):
            return operation
    raise AssertionError(path)


@pytest.fixture
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of the client that openapi-python-client generates; its warnings fail the test."""
    folder = Path(sys.executable).parent
    argv = [folder / "openapi-python-client", "generate", "--path", openapi.KEPT, "--meta", "none", "--fail-on-warning"]
    argv += ["--output-path", tmp_path / "generated_client"]
    # It formats what it has written with ruff.
    env = {**os.environ, "PATH": f"{folder}:{os.environ.get('PATH', '')}"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.syspath_prepend(tmp_path)
    return lambda name: importlib.import_module(f"generated_client.{name}")


def test_a_generated_client_has_typed_answers(generated: Any, shared: Any) -> None:
    models = generated("models")

    def call(operation: str, *args: Any, **kwargs: Any) -> Any:
        return generated(f"api.v2.{operation}").sync(*args, client=client, **kwargs)

    with serving(shared.uri) as service:
        client = generated("client").Client(base_url=service.url)
        asked = models.Submission(command=["sh", "-c", "echo hello"], name="generated", duration="5m")
        submitted = call("submit_job", body=asked)
        assert isinstance(submitted, models.SubmittedJob)
        until(lambda: call("get_job", submitted.id).state == "INACTIVE")
        job = call("get_job", submitted.id)
        assert isinstance(job, models.Job) and job.exception is None
        assert (job.name, job.result, job.returncode, job.duration) == ("generated", "COMPLETED", 0, 300.0)
        page = call("list_jobs", name="generated", fields="id,status")
        assert isinstance(page, models.JobPage)
        assert [(one.id, one.status) for one in page.jobs] == [(submitted.id, "COMPLETED")]
        assert call("get_job_output", submitted.id).payload.read() == b"hello\n"
        refused = call("get_job", "nosuch!")
        assert isinstance(refused, models.Problem) and refused.status == 404
