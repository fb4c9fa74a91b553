"""`/v1` as clients of flux-restful-api use it, on a real broker."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from headrace.formats.spec import jobid
from waiting import until

KEYS_OF_DETAILS = {
    *("id", "userid", "urgency", "priority", "state", "name", "ntasks", "nnodes", "ranks", "nodelist", "duration"),
    *("expiration", "result", "returncode", "runtime", "waitstatus", "exception", "t_submit", "annotations"),
}


def submit(client: Any, **fields: Any) -> int:
    answer = client.post("/v1/jobs/submit", params=fields)
    assert answer.status_code == 200, answer.text
    assert answer.json().keys() == {"Message", "id"}
    return answer.json()["id"]


def output(client: Any, id: Any) -> list[str]:
    """The lines of a job that writes something, when it has ended."""
    until(lambda: client.get(f"/v1/jobs/{id}").json()["state"] == "INACTIVE")
    until(lambda: "Output" in client.get(f"/v1/jobs/{id}/output").json())
    return client.get(f"/v1/jobs/{id}/output").json()["Output"]


def test_a_job_is_listed_from_its_submission_on_in_each_form(instance: Any, served: Any) -> None:
    client = served(instance)
    assert client.get("/v1/jobs").json() == {"jobs": []}
    id = submit(client, command="sleep 1000")
    listed = client.get("/v1/jobs").json()["jobs"]
    assert [job["id"] for job in listed] == [id] and listed[0]["name"] == "sleep"
    # The scheduler's annotations come with the job's resources.
    until(lambda: "annotations" in client.get(f"/v1/jobs/{id}").json())
    for params in ({"details": True}, {"detail": "true"}, {"details": "1", "limit": 1}):
        details = client.get("/v1/jobs", params=params).json()
        assert details.keys() == {str(id)} and details[str(id)].keys() >= KEYS_OF_DETAILS
    listing = client.get("/v1/jobs", params={"details": True, "listing": True}).json()
    assert [job["id"] for job in listing] == [id]
    assert client.get(f"/v1/jobs/{id}").json()["exception"] == {
        **{"occurred": False, "severity": "", "type": "", "note": ""}
    }
    for params, nothing in (({"details": 1}, {}), ({}, {"jobs": []}), ({"details": 1, "listing": 1}, [])):
        assert client.get("/v1/jobs", params={**params, "limit": 0}).json() == nothing
    client.post(f"/v1/jobs/{id}/cancel")


def test_the_newest_job_is_first(client: Any) -> None:
    ids = [submit(client, command="sleep 1000") for _ in range(4)]
    assert [job["id"] for job in client.get("/v1/jobs").json()["jobs"]][:4] == ids[::-1]
    assert list(client.get("/v1/jobs?details=true").json())[:4] == [str(id) for id in ids[::-1]]
    for id in ids:
        client.post(f"/v1/jobs/{id}/cancel")


def test_a_job_is_canceled_once(client: Any) -> None:
    id = submit(client, command="sleep 1000")
    answer = client.post(f"/v1/jobs/{id}/cancel")
    assert (answer.status_code, answer.json()["id"]) == (200, str(id))
    assert "requested to cancel" in answer.json()["Message"]
    until(lambda: client.get(f"/v1/jobs/{id}").json()["result"] == "CANCELED")
    answer = client.post(f"/v1/jobs/{id}/cancel")
    assert answer.status_code == 400 and "cannot be cancelled" in answer.json()["Message"]
    assert client.get(f"/v1/jobs/{id}").json()["exception"]["type"] == "cancel"


@pytest.mark.parametrize("form", ["dec", "f58", "f58plain", "hex", "dothex", "kvs", "words"])
def test_an_id_is_taken_in_each_form(client: Any, form: str) -> None:
    id = submit(client, command="true")
    assert client.get(f"/v1/jobs/{jobid.encode(id, form)}").json()["id"] == id


def ask_of(client: Any, id: Any, route: str) -> Any:
    return client.request("POST" if route == "/cancel" else "GET", f"/v1/jobs/{id}{route}")


@pytest.mark.parametrize("id", ["99999999999999999999999", "nosuch", "ƒ", "-1", "1.5", "%00", "ƒ0OIl"])
@pytest.mark.parametrize("route", ["", "/cancel", "/output", "/output/stream"])
def test_what_is_no_id_is_refused(client: Any, id: str, route: str) -> None:
    answer = ask_of(client, id, route)
    assert answer.status_code == 400 and "is not a job id" in answer.json()["Message"], answer.text


# What flux-restful 1.1.0 answers (test_peer_client.py has its client).
def test_an_unknown_job_is_answered_as_flux_restful_api_does(client: Any) -> None:
    assert (ask_of(client, 1, "").status_code, ask_of(client, "..", "").status_code) == (404, 404)
    cancelled = ask_of(client, 1, "/cancel")
    assert cancelled.status_code == 400 and cancelled.json()["id"] == "1"
    assert cancelled.json()["Message"].startswith("Job cannot be cancelled: ")
    written = ask_of(client, 1, "/output")
    assert written.status_code == 200 and written.json()["Message"].startswith("The output does not exist yet")
    followed = ask_of(client, 1, "/output/stream")
    assert (followed.status_code, followed.content) == (200, b"")


@pytest.mark.parametrize("path", ["/v1/jobs/1/cancel", "/v1/jobs/submit", "/v1/service/stop", "/v1/token"])
def test_get_changes_nothing(client: Any, path: str) -> None:
    assert client.get(path, params={"command": "true"}).status_code in (400, 404, 405)


@pytest.mark.parametrize(
    "where",
    [
        {"params": {"command": "echo one", "num_tasks": 2, "workdir": "/"}},
        {"data": {"command": "echo one", "num_tasks": "2", "workdir": "/"}},
        {"files": {"command": (None, "echo one"), "num_tasks": (None, "2"), "workdir": (None, "/")}},
        {"json": {"command": "echo one", "num_tasks": 2, "workdir": "/"}},
        {"json": {"command": ["echo", "one"], "num_tasks": 2.0, "workdir": "/"}},
        {"params": {"num_tasks": "2"}, "json": {"command": "echo one", "num_tasks": 7, "workdir": "/"}},
    ],
    ids=["query", "form", "multipart", "json", "words", "both"],
)
def test_fields_are_taken_from_query_form_and_json(client: Any, where: Any) -> None:
    answer = client.post("/v1/jobs/submit", **where)
    assert answer.status_code == 200, answer.text
    assert output(client, answer.json()["id"]) == ["one\n", "one\n"]


ENVIRONMENTS = [
    {"params": {"command": "env"}, "json": {"COLOR": "green"}},
    {"json": {"command": "env", "envars": {"COLOR": "green"}}},
    {"params": {"command": "env", "envars": "{'COLOR': 'green'}"}},
    {"params": {"command": "env", "envars": '{"COLOR": "green"}'}},
    {"data": {"command": "env", "envars": '{"COLOR": "green"}'}},
]


@pytest.mark.parametrize("where", ENVIRONMENTS, ids=range(len(ENVIRONMENTS)))
def test_a_job_has_the_variables_of_its_request_and_none_of_the_service(
    client: Any, where: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUX_SECRET_KEY", "notsecrethoo")
    monkeypatch.setenv("HIDDEN", "notsecrethoo")
    lines = output(client, client.post("/v1/jobs/submit", **where).json()["id"])
    names = {line.partition("=")[0] for line in lines}
    assert "COLOR=green\n" in lines and "notsecrethoo" not in "".join(lines)
    assert names >= {"HOME", "USER", "LOGNAME", "PATH"} and not names & {"HIDDEN", "FLUX_SECRET_KEY", "PYTEST_VERSION"}


def test_output_is_there_line_by_line_as_far_as_it_was_written(client: Any) -> None:
    id = submit(client, command="sh -c 'echo \"🥞 a\x0cb\"; echo c; sleep 1000'")
    until(lambda: "c\n" in client.get(f"/v1/jobs/{id}/output").json().get("Output", []))
    assert client.get(f"/v1/jobs/{id}/output").json() == {"Output": ["🥞 a\x0cb\n", "c\n"]}
    client.post(f"/v1/jobs/{id}/cancel")
    silent = submit(client, command="true")
    until(lambda: client.get(f"/v1/jobs/{silent}").json()["state"] == "INACTIVE")
    answer = client.get(f"/v1/jobs/{silent}/output")
    assert answer.status_code == 200 and "not exist yet" in answer.json()["Message"]


def test_output_is_streamed_to_its_end(client: Any) -> None:
    id = submit(client, command="sh -c 'seq 20000; printf \"\\377\"'")
    with client.stream("GET", f"/v1/jobs/{id}/output/stream") as answer:
        assert answer.read() == b"".join(b"%d\n" % number for number in range(1, 20001)) + b"\xff"


def test_the_stream_of_a_job_that_has_never_run_ends(client: Any, shared: Any) -> None:
    id = shared.flux("submit", "--urgency=hold", "true").strip()
    client.post(f"/v1/jobs/{id}/cancel")
    until(lambda: client.get(f"/v1/jobs/{id}").json()["state"] == "INACTIVE")
    assert client.get(f"/v1/jobs/{id}/output/stream").content == b""


def test_a_search_counts_what_it_gives(instance: Any, served: Any) -> None:
    client = served(instance)
    ids = [submit(client, command=f"sh -c 'exit {number}'", workdir=f"/(x{number}") for number in range(5)]
    until(lambda: len(client.get("/v1/jobs/search?search=INACTIVE").json()["data"]) == 5)

    def found(**params: Any) -> list[int]:
        answer = client.get("/v1/jobs/search", params=params).json()
        assert answer["recordsTotal"] == 5 and answer["recordsFiltered"] == len(answer["data"])
        return [ids.index(job["id"]) for job in answer["data"]]

    assert found() == [4, 3, 2, 1, 0]
    assert found(start=1) == [3, 2, 1, 0] and found(length=3) == [4, 3, 2] and found(start=3, length=1) == [1]
    # Their search ignores a start beyond the end.
    assert found(start=5) == found(start=99) == found(length=-1) == [4, 3, 2, 1, 0] and found(length=0) == []
    for name in ("search", "query", "search[value]"):
        assert found(**{name: "(X3"}) == [3] and found(**{name: ".*"}) == []
    assert found(search=jobid.encode(ids[2])) == [2]
    assert client.get("/v1/jobs/search?draw=7").json()["draw"] == 7


@pytest.mark.parametrize("value", ["x", "1.5", "nan", "1e3", "0x1", "99999999999999999999", "--1", "inf", "²"])
def test_a_number_that_is_none_counts_as_not_given_in_listings(client: Any, value: str) -> None:
    assert client.get("/v1/jobs", params={"limit": value}).json() == client.get("/v1/jobs").json()
    plain = client.get("/v1/jobs/search").json()
    for name in ("start", "length", "draw"):
        assert client.get("/v1/jobs/search", params={name: value}).json() == plain
    answer = client.post("/v1/jobs/submit", params={"command": "true", "num_tasks": value})
    assert answer.status_code == 422 and "num_tasks" in answer.json()["Message"] and answer.json()["Errors"]


def test_the_hosts_that_are_up(client: Any, shared: Any) -> None:
    assert client.get("/v1/nodes").json() == {"nodes": shared.flux("resource", "list", "-no{nodelist}").split()[:1]}


@pytest.mark.parametrize("body", [b"{", b"[1]", b'"x"', b"\xff", b"[" * 10000])
def test_a_body_that_cannot_be_read_is_refused(client: Any, body: bytes) -> None:
    answer = client.post("/v1/jobs/submit", content=body)
    assert answer.status_code == 400 and "body" in answer.json()["Message"]


@pytest.mark.parametrize(
    "fields", [{}, {"command": ""}, {"command": "'"}, {"command": "true", "option_flags": "-ox=1"}]
)
def test_what_is_wrong_with_a_submission_is_listed(client: Any, fields: Any) -> None:
    answer = client.post("/v1/jobs/submit", json=fields)
    assert answer.status_code == 400 and len(answer.json()["Errors"]) == 1


def test_what_the_broker_refuses_is_told_in_its_words(client: Any) -> None:
    answer = client.post("/v1/jobs/submit", params={"command": "true", "option_flags": "verbose=x"})
    assert answer.status_code == 200
    for field in ({"num_nodes": 99}, {"gpus_per_task": 1}, {"cores_per_task": 9999}, {"num_tasks": 99999}):
        answer = client.post("/v1/jobs/submit", params={"command": "true", **field})
        assert answer.status_code == 400 and "unsatisfiable" in answer.json()["Errors"][0], field


def test_a_workflow_tool_runs_beside_the_service_and_submits(
    instance: Any, served: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "snakemake"
    tool.write_text(
        '#!/bin/sh\nprintf "%s" "$HIDDEN$COLOR" >out\nflux submit --job-name="$1" true && exec sleep 1000\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("HIDDEN", "x")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    with served(instance) as client:
        params = {"command": f"{tool} step", "is_launcher": True, "workdir": str(tmp_path)}
        answer = client.post("/v1/jobs/submit", params=params, json={"COLOR": "green"})
        assert answer.json()["id"] == "MANY"
        until(lambda: [job["name"] for job in client.get("/v1/jobs").json()["jobs"]] == ["step"])
        assert (tmp_path / "out").read_text() == "green"
        service = client.app.state.service
        for command, status in (("make all", 400), ("/nosuch/nextflow run", 400)):
            answer = client.post("/v1/jobs/submit", params={"command": command, "is_launcher": True})
            assert answer.status_code == status and command.split()[0] in answer.json()["Message"]
    assert [one.poll() for one in service.launchers] == [-15]


def test_a_broker_that_is_gone_is_told_with_503(served: Any) -> None:
    client = served(SimpleNamespace(uri="local:///nosuch"))
    for method, path in (("GET", "/v1/jobs"), ("GET", "/v1/jobs/1"), ("POST", "/v1/jobs/submit?command=true")):
        answer = client.request(method, path)
        assert answer.status_code == 503 and "/nosuch" in answer.json()["Message"]


SIGNED = {"user": "fluxuser", "password": "12345", "secret_key": "a key of thirty-two characters .."}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def signed(key: str = SIGNED["secret_key"], **claims: Any) -> str:
    told = {"user": "fluxuser", "pass": "12345", "scope": "token", **claims}
    return jwt.encode({"alg": "HS256"}, told, OctKey.import_key(key))


def test_each_route_but_those_that_give_tokens_needs_one(shared: Any, served: Any) -> None:
    client = served(shared, auth="token", **SIGNED)
    paths = client.get("/openapi.json").json()["paths"]
    routes = [(method, path) for path, methods in paths.items() for method in methods if path.startswith("/v1/")]
    assert len(routes) == 12
    for method, path in routes:
        for headers in ({}, bearer("x"), bearer(signed()), {"Authorization": "Basic eDp5"}):
            answer = client.request(method, path.replace("{jobid}", "1"), headers=headers)
            if path in ("/v1/auth", "/v1/token", "/v1/login/access-token"):
                assert answer.status_code in (200, 400)
            else:
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), path


def test_a_signed_header_and_a_password_give_tokens_of_the_service(shared: Any, served: Any) -> None:
    client = served(shared, auth="token", **SIGNED)
    assert client.get("/v1/auth").json() == {
        **{"backend": "shared-secret", "password_login": True, "shared_secret_handshake": True}
    }
    for answer in (
        client.post("/v1/token", headers=bearer(signed())),
        client.post("/v1/login/access-token", data={"username": "fluxuser", "password": "12345"}),
    ):
        assert answer.json()["token_type"] == "Bearer" and answer.json()["access_token"].count(".") == 0
        headers = bearer(answer.json()["access_token"])
        assert client.get("/v1/jobs", headers=headers).status_code == 200
        sent = client.post("/v1/jobs/submit", json={"command": "echo x"}, headers=headers)
        assert sent.status_code == 200


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.post("/v1/token"),
        lambda client: client.post("/v1/token", headers=bearer("x.y.z")),
        lambda client: client.post("/v1/token", headers=bearer(signed(key="another key of thirty-two bytes .."))),
        lambda client: client.post("/v1/token", headers=bearer(signed(**{"pass": "1234"}))),
        lambda client: client.post("/v1/token", headers=bearer(signed(**{"pass": ""}))),
        lambda client: client.post("/v1/token", headers=bearer(signed(user="root"))),
        lambda client: client.post("/v1/token", headers=bearer(signed(scope="x"))),
        lambda client: client.post("/v1/token", headers=bearer(signed(exp=1))),
        lambda client: client.post("/v1/login/access-token", data={"username": "fluxuser", "password": "x"}),
        lambda client: client.post("/v1/login/access-token", params={"username": "fluxuser", "password": "12345"}),
        lambda client: client.post("/v1/login/access-token"),
    ],
)
def test_what_proves_nothing_is_denied(shared: Any, served: Any, ask: Any) -> None:
    answer = ask(served(shared, auth="token", **SIGNED))
    assert (answer.status_code, answer.json()) == (400, {"Message": "Denied"})


def test_without_a_password_nothing_gives_a_token(shared: Any, served: Any) -> None:
    client = served(shared, auth="token", secret_key=SIGNED["secret_key"])
    assert client.post("/v1/token", headers=bearer(signed(**{"pass": ""}))).status_code == 400
    assert client.post("/v1/login/access-token", data={"username": "fluxuser", "password": ""}).status_code == 400
    assert client.get("/v1/auth").json()["password_login"] is False


def test_the_instance_is_stopped_by_a_known_user_alone(instance: Any, served: Any) -> None:
    assert served(instance).post("/v1/service/stop").status_code == 403
    client = served(instance, auth="token", **SIGNED)
    token = client.post("/v1/token", headers=bearer(signed())).json()["access_token"]
    assert client.post("/v1/service/stop", headers=bearer(token)).status_code == 200
    instance.stopped = True
    until(lambda: client.get("/v1/jobs", headers=bearer(token)).status_code == 503)
