"""Every route, asked by a user for another user's job, token or account: the answer is the one for what never was.

The routes are those of the application, so that a new one is asked, too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.routing import BaseRoute
from tests.service.conftest import ENVIRONMENT, PASSWORD, forms_token

from headrace.formats.spec import jobid
from headrace.service import broker_link
from headrace.service.store import database, users
from headrace.service.users import credential
from waiting import until

# What routes with a job need beside it to do something. A new route that needs something fails until it is here.
FIELDS: dict[str, dict[str, Any]] = {
    "/v2/jobs/{jobid}/kill": {"signal": "SIGTERM"},
    "/v2/jobs/{jobid}/urgency": {"urgency": 1},
    "/v2/jobs/{jobid}/update": {"duration": 1000.0},
    "/jobs/{id}/kill": {"signal": "SIGTERM"},
    "/v2/users/{name}": {"admin": False},
    "/people/users/{name}/change": {"admin": "no"},
    "/v2/banks/{bank:path}/users/{user}": {"max_nodes": 5},
    "/banks/{bank:path}/users/{user}/change": {"max_nodes": "5"},
    "/v2/banks/{bank:path}/users": {"user": "spare.x"},
    "/banks/{bank:path}/users": {"user": "spare.x"},
    "/v2/banks/{bank:path}": {"shares": 5},
    "/banks/{bank:path}/change": {"shares": "5"},
}
# What the parameters of paths name. A new one fails until it is here.
KINDS = {
    **{"jobid": "job", "id": "job", "token_id": "token", "name": "account"},
    **{"bank": "bank", "user": "association", "experiment": "experiment"},
}
_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")
# Answered without a user: they are about nobody's jobs.
PUBLIC = {"/v1/auth", "/v1/token", "/v1/login/access-token", "/login", "/openapi.json", "/v2/openapi.json", "/v2/docs"}


class Route(NamedTuple):
    method: str
    path: str

    @property
    def kind(self) -> str:
        """What it is about by the last parameter of its path, "" for nothing of the kind."""
        names = _PARAMETER.findall(self.path)
        return KINDS[names[-1]] if names else ""

    def at(self, things: dict[str, str]) -> str:
        return _PARAMETER.sub(lambda found: things.get(KINDS[found[1]], "x"), self.path)


def flat(routes: list[Any], prefix: str = "") -> Iterator[tuple[str, BaseRoute]]:
    """(path, route) of an application's routes, with those of the routers in it."""
    for route in routes:
        inner = getattr(route, "original_router", None) or getattr(route, "router", None)
        if hasattr(route, "endpoint"):
            yield prefix + route.path, route
        elif inner is not None:
            yield from flat(inner.routes, prefix)


def routes(app: Any) -> list[Route]:
    found = [
        Route(method, path)
        for path, route in flat(app.routes)
        for method in sorted(getattr(route, "methods", None) or ())
        if method != "HEAD"
    ]
    assert {Route("POST", "/v1/jobs/{jobid}/cancel"), Route("GET", "/jobs")} <= set(found)

    # Streams of a job that was cancelled end; what is removed is removed last.
    def order(route: Route) -> tuple[bool, bool]:
        return not route.path.endswith("/cancel"), route.method == "DELETE" or route.path.endswith("/remove")

    return sorted(found, key=order)


def ask(client: Any, route: Route, things: dict[str, str], page: bool) -> Any:
    """The answer, as scripts or as the page asks."""
    fields = FIELDS.get(route.path, {})
    if page:
        fields = {**fields, "csrf": client.forms} if route.method != "GET" else {}
        return client.request(route.method, route.at(things), data=fields or None)
    return client.request(route.method, route.at(things), json=fields if route.method != "GET" else None)


def without_names(answer: Any, things: dict[str, str]) -> tuple[int, str]:
    text, id = answer.text, int(things["job"])
    for form in (jobid.encode(id), str(id), *(jobid.encode(id, kind) for kind in ("dothex", "hex", "kvs", "words"))):
        text = text.replace(form, "ID")
    for name in ("token", "account", "association", "experiment"):
        text = text.replace(things[name], "ID")
    # Pages of two moments differ by these.
    return answer.status_code, re.sub(r'value="[0-9a-f]{64}"', "", text)


@pytest.fixture
def anns(group: Any) -> Iterator[int]:
    """The id of a job of ann's that runs and has written something."""
    client = group.client("ann.x")
    id = client.post("/v1/jobs/submit", json={"command": "sh -c 'echo secret of ann; exec sleep 1000'"}).json()["id"]
    until(lambda: "secret of ann" in client.get(f"/v1/jobs/{id}/output").text)
    yield id
    client.post(f"/v1/jobs/{id}/cancel")
    until(lambda: client.get(f"/v1/jobs/{id}").json()["state"] == "INACTIVE")


@pytest.fixture
def things(group: Any, anns: int) -> Iterator[dict[str, str]]:
    """Of each kind the name of something that is ann's, or the account of one more user."""
    token = group.client("ann.x").post("/v2/tokens", json={"note": "secret of ann"}).json()["id"]
    boss = group.client("boss.x")
    assert boss.post("/v2/users", json={"name": "spare.x", "password": PASSWORD}).status_code == 201
    of_banks = {"bank": "physics", "association": "dora.x"}
    yield {"job": str(anns), "token": token, "account": "spare.x", **of_banks, "experiment": "study"}
    boss.delete("/v2/users/spare.x")


def sweep(group: Any, things: dict[str, str], name: str, kinds: Iterable[str] = ("job", "token")) -> list[Route]:
    """Ask all routes about things of these kinds; returns those that tell one from what never was."""
    told = []
    by_header, by_page = group.client(name), group.client(name, cookie=True)
    by_page.forms = forms_token(by_page, "/jobs")
    never = {"job": str(int(things["job"]) + (1 << 30)), "token": "0" * 8, "account": "nobody.x"}
    never |= {"bank": things["bank"], "association": "nobody.x", "experiment": "nothing"}
    for route in routes(group.app):
        if route.kind in kinds:
            page = not route.path.startswith(("/v1/", "/v2/"))
            client = by_page if page else by_header
            answers = [without_names(ask(client, route, those, page), those) for those in (things, never)]
            if answers[0] != answers[1]:
                told.append(route)
    return told


def test_no_route_tells_what_is_another_users_from_what_never_was(group: Any, things: dict[str, str]) -> None:
    assert sweep(group, things, "bob.x", ("job", "token", "account", "association", "experiment")) == []
    ann = group.client("ann.x")
    assert ann.get(f"/v1/jobs/{things['job']}").json()["state"] == "RUN"
    assert things["token"] in {one["id"] for one in ann.get("/v2/tokens").json()["tokens"]}
    # The user whose they are has another answer from each route; a token that is revoked never was.
    asked = [route for route in routes(group.app) if route.kind in ("job", "token")]
    assert len(asked) >= 6
    told = set(sweep(group, things, "ann.x"))
    assert set(asked) - told <= {Route("DELETE", "/v2/tokens/{token_id}")} and len(told) < len(asked)
    # Accounts are an administrator's.
    assert sweep(group, things, "ann.x", ["account"]) == []
    accounts = {route for route in routes(group.app) if route.kind == "account"}
    told = set(sweep(group, things, "boss.x", ["account"]))
    assert accounts - told <= {Route("POST", "/people/users/{name}/remove")} and len(accounts) >= 4
    # Experiments are an administrator's, too.
    assert sweep(group, things, "ann.x", ["experiment"]) == []
    experiments = {route for route in routes(group.app) if route.kind == "experiment"}
    assert set(sweep(group, things, "boss.x", ["experiment"])) == experiments and len(experiments) == 3
    # Associations are for the coordinators of their bank and for administrators.
    assert sweep(group, things, "ann.x", ["association"]) == []
    associations = {route for route in routes(group.app) if route.kind == "association"}
    told = set(sweep(group, things, "boss.x", ["association"]))
    assert associations - told <= {Route("POST", "/banks/{bank:path}/users/{user}/remove")} and len(associations) >= 2


def test_a_user_changes_no_bank_but_one_that_the_user_coordinates(group: Any) -> None:
    changes = [route for route in routes(group.app) if route.kind in ("bank", "association") and route.method != "GET"]
    assert len(changes) >= 4
    boss = group.client("boss.x")
    before = boss.get("/v2/associations").text
    for name, banks in (("bob.x", ("physics", "root")), ("ann.x", ("physics", "biology"))):
        by_header, by_page = group.client(name), group.client(name, cookie=True)
        by_page.forms = forms_token(by_page, "/jobs")
        for route, bank in itertools.product(changes, banks):
            page = not route.path.startswith("/v2/")
            answer = ask(by_page if page else by_header, route, {"bank": bank, "association": "dora.x"}, page)
            assert answer.status_code == 403 and f"not a coordinator of {bank}" in answer.text, (route, answer.text)
    assert boss.get("/v2/associations").text == before


def test_without_the_stamp_another_users_job_is_within_reach(
    group: Any, things: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_as = broker_link.Connection.ask

    def unstamped(self: Any, identity: Any, *args: Any, **kwargs: Any) -> Any:
        return ask_as(self, credential.owner(), *args, **kwargs)

    monkeypatch.setattr(broker_link.Connection, "ask", unstamped)
    told = sweep(group, things, "bob.x")
    assert {Route("POST", "/v1/jobs/{jobid}/cancel"), Route("GET", "/v1/jobs/{jobid}/output")} <= set(told)


def test_lists_have_the_users_own_jobs_and_an_administrators_those_of_all(group: Any, anns: int) -> None:
    bob = group.client("bob.x")
    own = bob.post("/v1/jobs/submit", json={"command": "echo of bob"}).json()["id"]

    def listed(name: str) -> set[int]:
        client = group.client(name)
        ids = {job["id"] for job in client.get("/v1/jobs").json()["jobs"]}
        assert ids == {job["id"] for job in client.get("/v1/jobs/search").json()["data"]}
        return ids

    until(lambda: own in listed("bob.x"))
    assert anns in listed("ann.x") and {anns, own} <= listed("boss.x")
    assert anns not in listed("bob.x") and own not in listed("ann.x")
    page = group.client("bob.x", cookie=True).get("/jobs").text
    assert jobid.encode(own) in page and jobid.encode(anns) not in page
    for path in {route.path for route in routes(group.app) if route.method == "GET" and not route.kind}:
        if "{" not in path and path not in PUBLIC and "events" not in path:
            client = bob if path.startswith(("/v1/", "/v2/")) else group.client("bob.x", cookie=True)
            text = client.get(path).text
            assert "secret of ann" not in text and str(anns) not in text and jobid.encode(anns) not in text, path


def test_an_administrator_sees_all_and_the_broker_still_decides(group: Any, anns: int) -> None:
    boss = group.client("boss.x")
    assert boss.get(f"/v1/jobs/{anns}").json()["userid"] == 200_000
    assert boss.post(f"/v1/jobs/{anns}/cancel").status_code == 403
    page = group.client("boss.x", cookie=True)
    for path in (
        *("/v1/jobs/ID/output", "/v1/jobs/ID/output/stream", "/v2/jobs/ID/jobspec", "/v2/jobs/ID/eventlog"),
        *("/v2/jobs/ID/output", "/v2/jobs/ID/output?follow=true", "/v2/jobs/ID/output?offset=1", "/v2/jobs/ID/events"),
        *("/jobs/ID", "/jobs/ID?find=secret", "/jobs/ID/output.txt", "/jobs/ID/output/events"),
    ):
        asking = boss if path.startswith("/v") else page
        assert asking.get(path.replace("ID", str(anns))).status_code == 403, path
    assert boss.get(f"/v2/jobs/{anns}/output", headers={"Range": "bytes=0-3"}).status_code == 403


def test_each_route_but_those_to_log_in_needs_a_user(group: Any) -> None:
    client = group.client()
    for route in routes(group.app):
        answer = client.request(route.method, route.at({"job": "1", "token": "x", "account": "x"}))
        if route.path in PUBLIC:
            assert answer.status_code in (200, 400, 403, 422), route
        elif route.method == "GET" and not route.path.startswith(("/v1/", "/v2/", "/metrics")):
            assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/login"), route
        else:
            assert answer.status_code == 401, route


def test_the_instance_is_stopped_by_administrators_only(group: Any) -> None:
    answer = group.client("ann.x").post("/v1/service/stop")
    assert answer.status_code == 403 and "administrators only" in answer.json()["Message"]


def test_jobs_have_the_names_of_the_stores_users_also_of_one_who_was_added_meanwhile(group: Any) -> None:
    store = database.open_file(group.database)
    users.add(store, "new.x", PASSWORD, False)
    client = group.client("new.x")
    id = client.post("/v1/jobs/submit", json={"command": "true"}).json()["id"]
    boss = group.client("boss.x")
    until(lambda: [job["user"] for job in boss.get("/v2/jobs?user=new.x").json()["jobs"]] == ["new.x"])
    assert boss.get(f"/v2/jobs/{id}").json()["user"] == "new.x"


def test_what_a_workflow_tool_submits_is_its_users(group: Any, tmp_path: Path) -> None:
    tool = tmp_path / "snakemake"
    tool.write_text("#!/bin/sh\nexec flux submit --quiet --job-name=of-a-tool true\n")
    tool.chmod(0o755)
    client = group.client("ann.x")
    fields = {"command": str(tool), "is_launcher": True, "envars": {"PATH": ENVIRONMENT["PATH"]}}
    assert client.post("/v1/jobs/submit", json=fields).json()["id"] == "MANY"

    def named() -> list[Any]:
        return [job for job in client.get("/v1/jobs").json()["jobs"] if job["name"] == "of-a-tool"]

    until(lambda: bool(named()))
    assert named()[0]["userid"] == 200_000
