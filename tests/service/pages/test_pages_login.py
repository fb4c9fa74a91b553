"""Logging in by name and password, with several users, and out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.service.conftest import PASSWORD, forms_token, log_in


def test_who_is_not_logged_in_is_shown_the_form_and_then_what_was_asked_for(group: Any) -> None:
    client = group.client()
    answer = client.get("/jobs?state=running")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fjobs%3Fstate%3Drunning")
    assert 'value="/jobs?state=running"' in client.get(answer.headers["location"]).text
    answer = log_in(client, "ann.x", next="/jobs?state=running")
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs?state=running")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "samesite=lax" in cookie.lower() and "Secure" not in cookie
    page = client.get("/jobs")
    assert page.status_code == 200 and "ann.x" in page.text
    answer = client.post("/logout", data={"csrf": forms_token(client, "/jobs")})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    client.headers["Cookie"] = cookie.partition(";")[0]
    assert client.get("/jobs").status_code == 303, "the token of the cookie is not valid any more"


@pytest.mark.parametrize("auth", ["users", "token"])
def test_who_is_not_logged_in_is_shown_neither_pages_nor_where_the_instance_is(
    group: Any, served: Any, auth: str
) -> None:
    client = group.client() if auth == "users" else served(group.instance, auth="token")
    socket = group.instance.uri
    paths = [
        "/login",
        "/login?token=x",
        "/nosuch",
        "/login?nosuch=1",
        "/static/nosuch",
        *(["/jobs"] * (auth == "token")),
    ]
    for path in paths:
        text = client.get(path).text
        assert "<h1>" in text and "<nav" not in text and socket not in text and socket[8:] not in text, path
    assert "<nav" not in client.post("/login", data={"name": "a", "password": "b"}).text
    if auth == "users":
        log_in(client, "ann.x")
    else:
        client.get(f"/login?token={client.app.state.service.access.logins.issue()}")
    for path in "/jobs", "/nosuch", "/jobs?page=x", "/jobs/nosuch":
        text = client.get(path).text
        assert "<nav" in text and socket in text and ("<span>ann.x</span>" in text) == (auth == "users"), path
    # The form on such a page is of the session.
    if auth == "users":
        assert client.post("/logout", data={"csrf": forms_token(client, "/nosuch")}).status_code == 303


@pytest.mark.parametrize(
    "next", ["https://example.org/", "//example.org", "/\\example.org", "", "x", "/\t/example.org"]
)
def test_nobody_is_sent_to_another_site(group: Any, next: str) -> None:
    assert log_in(group.client(), "ann.x", next=next).headers["location"] == "/jobs"


def test_behind_tls_the_cookie_is_for_tls_only(group: Any) -> None:
    client = group.client()
    client.base_url = "https://localhost"
    assert "Secure" in log_in(client, "ann.x").headers["set-cookie"]


def test_a_wrong_password_is_told_as_an_unknown_name_and_five_a_minute_are_all(group: Any) -> None:
    client = group.client()
    answers = [log_in(client, name, "wrong password") for name in ["nosuch"] * 6 + ["eve.x"] * 5]
    assert [answer.status_code for answer in answers] == [401] * 5 + [429] + [401] * 5
    texts = [answer.text.partition("<main")[2].partition("<form")[0] for answer in answers]
    assert texts[0] == texts[-1] and "try again in" in texts[5] and 0 < int(answers[5].headers["Retry-After"]) <= 60
    assert log_in(client, "eve.x").status_code == 429, "also with the right one"
    fields = {"username": "eve.x", "password": PASSWORD}
    assert client.post("/v1/login/access-token", data=fields).status_code == 429
    assert log_in(client, "ann.x").status_code == 303


@pytest.mark.parametrize("path", ["/login", "/logout"])
def test_a_form_without_its_token_or_from_another_site_changes_nothing(group: Any, path: str) -> None:
    client = group.client("ann.x", cookie=True)
    fields = {"name": "ann.x", "password": PASSWORD}
    for wrong in ({}, {"csrf": "x"}, {"csrf": forms_token(group.client())}):
        assert client.post(path, data={**fields, **wrong}).status_code == 403
    fields["csrf"] = forms_token(client)
    assert client.post(path, data=fields, headers={"Origin": "http://example.org"}).status_code == 403
    assert client.get("/jobs").status_code == 200


def test_the_audit_has_changes_and_refusals_but_no_secrets(group: Any) -> None:
    client = group.client("ann.x")
    before = len(group.audit.read_text().splitlines())
    secret = "a secret of a job"
    answer = client.post("/v1/jobs/submit?command=true", json={"SECRET": secret}).json()
    client.get("/v1/jobs")
    group.client().get("/v1/jobs")
    client.post(f"/v1/jobs/{answer['id']}/cancel?x={secret}", headers={"Origin": "http://example.org"})
    lines = [json.loads(line) for line in group.audit.read_text().splitlines()[before:]]
    told = [(one["user"], one["method"], one["path"], one["status"]) for one in lines]
    assert told == [
        ("ann.x", "POST", "/v1/jobs/submit", None),
        ("ann.x", "POST", "/v1/jobs/submit", 200),
        (None, "GET", "/v1/jobs", 401),
        (None, "POST", f"/v1/jobs/{answer['id']}/cancel", 403),
    ]
    assert lines[1]["job"] == answer["id"] and lines[1]["userid"] == 200_000 and lines[1]["address"]
    kept = group.audit.read_text()
    token = client.headers["Authorization"].partition(" ")[2]
    assert not any(text in kept for text in (secret, PASSWORD, token)) and group.audit.stat().st_mode & 0o077 == 0


def test_the_owner_logs_out_and_is_told_how_to_come_in_again(shared: Any, served: Any) -> None:
    client = served(shared, auth="token")
    client.get(f"/login?token={client.app.state.service.access.logins.issue()}")
    cookies = dict(client.cookies)
    assert "Log out" in client.get("/jobs").text
    assert (
        client.post("/logout", data={"csrf": forms_token(client, "/jobs")}, follow_redirects=False).status_code == 303
    )
    client.cookies.update(cookies)
    answer = client.get("/jobs")
    assert answer.status_code == 401 and "headrace api url" in answer.text and "Log out" not in answer.text
    assert "Log out" not in served(shared, auth="none").get("/jobs").text
