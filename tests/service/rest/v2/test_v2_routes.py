"""`/v2` on a real broker: jobs, what is known of each, and what is answered when something is wrong."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.service.test_ownership import routes

from headrace.formats.spec import jobid


def refused(answer: Any, status: int) -> dict[str, Any]:
    """The problem that an answer has."""
    assert answer.status_code == status and answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found.keys() >= {"type", "title", "status", "detail", "field", "errno"} and found["status"] == status
    return found


@pytest.fixture(scope="module")
def done(shared: Any) -> str:
    """The id of a job that has ended."""
    return str(shared.flux("submit", "--wait", "--job-name=finished", "echo", "hello").strip())


def test_a_job_is_described_under_each_form_of_its_id(client: Any, shared: Any, done: str) -> None:
    found = client.get(f"/v2/jobs/{done}").json()
    assert (found["name"], found["state"], found["result"], found["returncode"]) == (
        "finished",
        "INACTIVE",
        "COMPLETED",
        0,
    )
    assert found["id"].startswith("f") and found["why"] is None and found["exception"] is None and found["runtime"] > 0
    for form in ("dec", "hex", "dothex", "kvs", "words", "emoji", "f58", "f58plain"):
        text = jobid.encode(jobid.parse(done), form)
        assert client.get(f"/v2/jobs/{text}").json()["id"] == found["id"], form


def test_a_job_that_waits_says_why(client: Any, shared: Any) -> None:
    held = shared.flux("submit", "--urgency=hold", "true").strip()
    assert client.get(f"/v2/jobs/{held}").json()["why"] == {"reason": "held", "jobs_ahead": None, "t_estimate": None}
    first, second, third = (
        shared.flux("submit", "-N1", "--exclusive", "-t", "10m", "sleep", "600").strip() for _ in range(3)
    )
    found = client.get(f"/v2/jobs/{third}").json()
    assert found["state"] == "SCHED" and found["why"]["jobs_ahead"] == 1 and found["why"]["reason"]
    estimates = [client.get(f"/v2/jobs/{one}").json()["why"] for one in (first, second)]
    assert estimates[0] is None and time.time() < estimates[1]["t_estimate"] < time.time() + 3600
    listed = client.get("/v2/jobs?state=sched&fields=id,why").json()["jobs"]
    assert [job["why"]["reason"] for job in listed if job["id"] == found["id"]] == [found["why"]["reason"]]
    shared.flux("cancel", held, first, second, third)


def test_what_is_kept_of_a_job(client: Any, shared: Any, done: str) -> None:
    for key, path in (("jobspec", "jobspec"), ("R", "R")):
        assert client.get(f"/v2/jobs/{done}/{path}").json() == json.loads(shared.flux("job", "info", done, key))
    lines = shared.flux("job", "info", done, "eventlog").split()
    assert client.get(f"/v2/jobs/{done}/eventlog").json() == {"events": [json.loads(line) for line in lines]}


def test_what_a_job_has_not_is_not_found(client: Any, shared: Any) -> None:
    held = shared.flux("submit", "--urgency=hold", "true").strip()
    assert refused(client.get(f"/v2/jobs/{held}/R"), 404)["detail"].endswith("has no R")
    shared.flux("cancel", held)


@pytest.mark.parametrize("id", ["1", "f1", "nosuch!", "0x", "99999999999999999999999999"])
@pytest.mark.parametrize("path", ["", "/jobspec", "/R", "/eventlog"])
def test_an_id_of_no_job_is_not_found(client: Any, id: str, path: str) -> None:
    assert refused(client.get(f"/v2/jobs/{id}{path}"), 404)["title"] == "Not Found"


def test_a_path_and_a_method_that_are_not_there(client: Any) -> None:
    refused(client.get("/v2/nosuch"), 404)
    refused(client.delete("/v2/jobs"), 405)


def test_a_token_is_needed(shared: Any, served: Any) -> None:
    client = served(shared, auth="token")
    assert "token" in refused(client.get("/v2/jobs"), 401)["detail"]
    token = client.app.state.service.access.accounts.issue(None)
    assert client.get("/v2/jobs", headers={"Authorization": f"Bearer {token}"}).status_code == 200


def test_a_broker_that_is_away(tmp_path: Any, served: Any) -> None:
    class Nowhere:
        uri = f"local://{tmp_path}/nosuch"

    answer = served(Nowhere()).get("/v2/jobs")
    assert refused(answer, 503)["errno"] is None and answer.headers["retry-after"]


def test_no_route_takes_a_field_in_the_query_that_it_does_not_have_there(client: Any, done: str) -> None:
    asked = [one for one in routes(client.app) if one.path.startswith("/v2/")]
    assert len(asked) > 25
    things = {"job": str(jobid.parse(done)), "token": "0" * 8, "account": "nobody.x"}
    for route in asked:
        found = refused(client.request(route.method, route.at(things) + "?nosuch=1"), 422)
        assert (found["field"], found["detail"].partition(";")[0]) == ("nosuch", "nosuch is not known here"), route
    # That of a body is none of the query.
    found = refused(client.post(f"/v2/jobs/{things['job']}/cancel?note=x"), 422)
    assert found["field"] == "note"
