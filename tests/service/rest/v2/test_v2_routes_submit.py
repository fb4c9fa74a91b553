"""Submitting and changing jobs by `/v2`, on a real broker."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from waiting import until


def refused(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status and answer.headers["content-type"] == "application/problem+json", answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture
def submit(client: Any) -> Any:
    def send(**given: Any) -> str:
        answer = client.post("/v2/jobs", json=given)
        assert answer.status_code == 201, answer.text
        assert answer.headers["location"] == f"/v2/jobs/{answer.json()['id']}"
        return str(answer.json()["id"])

    return send


def ended(client: Any, id: str) -> dict[str, Any]:
    until(lambda: client.get(f"/v2/jobs/{id}").json()["state"] == "INACTIVE")
    found: dict[str, Any] = client.get(f"/v2/jobs/{id}").json()
    return found


def test_a_command_runs_as_its_fields_say(client: Any, shared: Any, submit: Any) -> None:
    id = submit(
        command="sh -c 'echo $COLOR $(pwd) $FLUX_URI_'",
        **{"name": "painter", "tasks": 1, "cores_per_task": 1, "cwd": "/", "env": {"COLOR": "green"}},
        **{"duration": "5m", "urgency": 20, "options": {"verbose": 0}, "attributes": {"user.note": "x"}},
    )
    job = ended(client, id)
    assert (job["name"], job["urgency"], job["duration"], job["cwd"], job["result"]) == (
        *("painter", 20, 300.0, "/", "COMPLETED"),
    )
    assert shared.flux("job", "attach", id) == "green /\n"
    jobspec = client.get(f"/v2/jobs/{id}/jobspec").json()
    assert jobspec["attributes"]["user"] == {"note": "x"}
    assert jobspec["attributes"]["system"]["shell"]["options"]["verbose"] == 0


def test_a_script_runs_and_lists_of_words_stay_as_they_are(client: Any, shared: Any, submit: Any) -> None:
    scripted = submit(script="#!/bin/sh\necho scripted $0\n")
    listed = submit(command=["echo", "a  b", "$HOME"])
    assert ended(client, scripted)["name"] == "script" and ended(client, listed)["result"] == "COMPLETED"
    assert shared.flux("job", "attach", scripted).startswith("scripted /")
    assert shared.flux("job", "attach", listed) == "a  b $HOME\n"


def test_a_job_waits_for_what_it_depends_on(client: Any, submit: Any) -> None:
    first = submit(command="true", urgency="hold")
    second = submit(command="true", dependencies=[f"afterok:{first}"])
    third = submit(command="true", dependencies=[{"scheme": "afterany", "value": first}])
    assert client.get(f"/v2/jobs/{second}").json()["state"] == "DEPEND"
    answer = client.post(f"/v2/jobs/{first}/urgency", json={"urgency": 16})
    assert answer.json() == {"id": first, "old_urgency": 0}
    assert {ended(client, id)["result"] for id in (first, second, third)} == {"COMPLETED"}


def test_a_whole_jobspec_and_a_dry_run(client: Any) -> None:
    answer = client.post("/v2/jobs?dry_run=true", json={"command": "true", "tasks": 1})
    jobspec = answer.json()["jobspec"]
    assert answer.status_code == 200 and jobspec["tasks"][0]["command"] == ["true"]
    before = len(client.get("/v2/jobs?limit=1000").json()["jobs"])
    answer = client.post("/v2/jobs", json={"jobspec": jobspec, "urgency": 9})
    assert ended(client, answer.json()["id"])["urgency"] == 9
    assert len(client.get("/v2/jobs?limit=1000").json()["jobs"]) == before + 1
    # More cores than there are.
    found = refused(client.post("/v2/jobs?dry_run=true", json={"command": "true", "cores_per_task": 30000}), 400)
    assert found["errno"] and found["field"] is None


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "command"),
        ({"command": "true", "script": "#!/bin/sh"}, "command"),
        ({"command": ""}, "command"),
        ({"command": "'"}, "command"),
        ({"command": [1]}, "command"),
        ({"command": ["a\0b"]}, "command"),
        ({"script": "echo"}, "script"),
        ({"command": "true", "nodes": 0}, "nodes"),
        ({"command": "true", "nodes": True}, "nodes"),
        ({"command": "true", "tasks": "2"}, "tasks"),
        ({"command": "true", "tasks": 1, "nodes": 2}, "tasks"),
        ({"command": "true", "cores_per_task": 1 << 60}, "cores_per_task"),
        ({"command": "true", "gpus_per_task": -1}, "gpus_per_task"),
        ({"command": "true", "exclusive": True}, "exclusive"),
        ({"command": "true", "duration": "long"}, "duration"),
        ({"command": "true", "duration": -1}, "duration"),
        ({"command": "true", "duration": True}, "duration"),
        ({"command": "true", "duration": [1]}, "duration"),
        ({"command": "true", "urgency": 32}, "urgency"),
        ({"command": "true", "urgency": "soon"}, "urgency"),
        ({"command": "true", "queue": ""}, "queue"),
        ({"command": "true", "cwd": "tmp"}, "cwd"),
        ({"command": "true", "env": {"A=B": "c"}}, "env"),
        ({"command": "true", "env": {"A": 1}}, "env"),
        ({"command": "true", "options": []}, "options"),
        ({"command": "true", "attributes": {"a..b": 1}}, "attributes"),
        ({"command": "true", "attributes": {"system.cwd.x": 1}}, "attributes"),
        ({"command": "true", "dependencies": "afterok:f1"}, "dependencies"),
        ({"command": "true", "dependencies": ["nocolon"]}, "dependencies"),
        ({"command": "true", "dependencies": [{"scheme": 1}]}, "dependencies"),
        ({"command": "true", "num_tasks": 1}, "num_tasks"),
        ({"jobspec": []}, "jobspec"),
        ({"jobspec": {}, "command": "true"}, "command"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_submitted(client: Any, given: Any, field: str) -> None:
    found = refused(client.post("/v2/jobs", json=given), 422)
    assert found["field"] == field and re.match(f"{field} (is|must|has|needs|cannot)", found["detail"]), found["detail"]


@pytest.mark.parametrize("number", ["1e400", "-1e400", "NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize(
    "form",
    [
        '{"command": "true", "duration": %s}',
        '{"command": "true", "cores_per_task": %s}',
        '{"command": "true", "urgency": %s}',
        '{"command": "true", "attributes": {"system.duration": %s}}',
        '{"command": "true", "options": {"x": [%s]}}',
        '{"jobspec": {"attributes": {"system": {"duration": %s}}}}',
    ],
)
def test_a_number_is_finite_wherever_it_stands(client: Any, submit: Any, form: str, number: str) -> None:
    body = (form % number).encode()
    refused(client.post("/v2/jobs", content=body), 400)
    assert client.post("/v1/jobs/submit", content=body).status_code in (400, 422)


def test_a_limit_is_infinite_by_its_word_alone(client: Any, submit: Any) -> None:
    for word in ("inf", "infinity"):
        answer = client.post("/v2/jobs?dry_run=true", json={"command": "true", "duration": word})
        assert answer.json()["jobspec"]["attributes"]["system"]["duration"] == 0
    for text in ("1e400", "nan", "-inf", "infinite"):
        assert refused(client.post("/v2/jobs", json={"command": "true", "duration": text}), 422)["field"] == "duration"
    id = submit(command="true", urgency="hold")
    for path in ("update", "urgency", "resubmit"):
        field = "urgency" if path == "urgency" else "duration"
        refused(client.post(f"/v2/jobs/{id}/{path}", content=b'{"%s": 1e400}' % field.encode()), 400)
    client.post(f"/v2/jobs/{id}/cancel")


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b'{"command": NaN}', b"[" * 100_000, b"null"])
def test_a_body_that_is_no_object_is_refused(client: Any, body: bytes) -> None:
    refused(client.post("/v2/jobs", content=body), 400)


def test_what_the_broker_refuses_has_its_words(client: Any) -> None:
    found = refused(client.post("/v2/jobs", json={"jobspec": {"version": 1}}), 400)
    assert found["errno"] == 1 and found["detail"]
    found = refused(client.post("/v2/jobs", json={"command": "true", "queue": "nosuch"}), 400)
    assert "nosuch" in found["detail"]
    half = b'{"command": "true", "attributes": {"user.x": "\\ud800"}}'
    refused(client.post("/v2/jobs", content=half), 400)


def test_a_body_has_a_bound(client: Any) -> None:
    refused(client.post("/v2/jobs", json={"command": ["true", "x" * (1 << 20)]}), 413)


def test_a_key_submits_once(client: Any) -> None:
    def send(key: str, **given: Any) -> Any:
        return client.post("/v2/jobs", json={"command": "true", **given}, headers={"Idempotency-Key": key})

    first, again, other = send("one"), send("one"), send("two")
    assert first.status_code == again.status_code == 201 and first.json() == again.json() != other.json()
    assert "one" in refused(send("one", name="x"), 409)["detail"]
    # What was refused has used up nothing.
    refused(send("three", queue="nosuch"), 400)
    assert send("three").status_code == 201


@pytest.mark.parametrize("keys", [["one", "two"], ["one", "one"], ["", "one"], [""], ["x" * 256], ["\t"], ["\x80"]])
@pytest.mark.parametrize("path", ["/v2/jobs", "/v2/jobs?dry_run=true", "/v2/jobs/{id}/resubmit"])
def test_a_key_that_is_none_is_refused_by_the_headers_name(
    client: Any, submit: Any, keys: list[str], path: str
) -> None:
    at = path.format(id=submit(command="true", urgency=0))
    before = len(client.get("/v2/jobs?limit=1000").json()["jobs"])
    headers = [(b"idempotency-KEY", key.encode("latin-1")) for key in keys]
    body = {} if path.endswith("resubmit") else {"command": "true"}
    found = refused(client.post(at, json=body, headers=headers), 400)
    assert found["field"] == "Idempotency-Key" and "Idempotency-Key" in found["detail"]
    assert len(client.get("/v2/jobs?limit=1000").json()["jobs"]) == before


def test_a_job_is_canceled_and_killed_once(client: Any, submit: Any) -> None:
    id = submit(command="sleep 1000")
    until(lambda: client.get(f"/v2/jobs/{id}").json()["state"] == "RUN")
    wrong = refused(client.post(f"/v2/jobs/{id}/kill", json={"signal": "NOSUCH"}), 422)
    assert wrong["detail"] == "signal must be the name or the number of a signal, such as USR1 or 10, not 'NOSUCH'"
    until(lambda: client.post(f"/v2/jobs/{id}/kill", json={"signal": "KILL"}).status_code == 200)
    assert ended(client, id)["returncode"] == 137
    for path in ("cancel", "kill"):
        assert "has ended" in refused(client.post(f"/v2/jobs/{id}/{path}"), 409)["detail"]
    id = submit(command="true", urgency=0)
    assert client.post(f"/v2/jobs/{id}/cancel", json={"note": "not needed"}).json() == {"id": id}
    assert ended(client, id)["exception"] == {"severity": 0, "type": "cancel", "note": "not needed"}


def test_a_job_is_updated(client: Any, submit: Any) -> None:
    id = submit(command="true", urgency=0, duration=600)
    assert client.post(f"/v2/jobs/{id}/update", json={"duration": "+5m"}).json() == {"id": id}
    job = client.get(f"/v2/jobs/{id}").json()
    assert job["duration"] == 900.0
    assert client.post(f"/v2/jobs/{id}/update", json={"duration": 60}).status_code == 200
    for given in ({}, {"duration": "-5m"}, {"duration": "x"}):
        refused(client.post(f"/v2/jobs/{id}/update", json=given), 422)
    refused(client.post(f"/v2/jobs/{id}/update", json={"tasks.x": 1}), 400)
    refused(client.post(f"/v2/jobs/{id}/urgency", json={}), 422)
    client.post(f"/v2/jobs/{id}/cancel")


def test_a_job_is_submitted_once_more(client: Any, shared: Any, submit: Any) -> None:
    first = submit(script="#!/bin/sh\necho $WHO\n", env={"WHO": "me"}, name="before")
    ended(client, first)
    answer = client.post(f"/v2/jobs/{first}/resubmit", json={"name": "after", "duration": "1h"})
    second = answer.json()["id"]
    assert answer.status_code == 201 and second != first
    job = ended(client, second)
    assert (job["name"], job["duration"], job["result"]) == ("after", 3600.0, "COMPLETED")
    assert shared.flux("job", "attach", second) == "me\n"


@pytest.mark.parametrize("path", ["cancel", "kill", "urgency", "update", "resubmit"])
def test_a_job_that_is_not_there_is_not_changed(client: Any, path: str) -> None:
    body = {"urgency": 1} if path == "urgency" else {"name": "x"} if path == "update" else {}
    refused(client.post(f"/v2/jobs/f123/{path}", content=json.dumps(body)), 404)


@pytest.mark.parametrize("jobspec", [{"\udcff": 1}, {"tasks": "\udcff"}, {"tasks": [{"command": ["\ud800"]}]}])
def test_a_jobspec_that_is_no_text_is_refused_whatever_its_form(client: Any, jobspec: Any) -> None:
    answer = client.post("/v2/jobs", content=json.dumps({"jobspec": jobspec}))
    assert answer.status_code == 400 and "is not UTF-8 text" in answer.json()["detail"], answer.text
