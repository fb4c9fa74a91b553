"""The pages as a browser gets them, on a real broker."""

from __future__ import annotations

import asyncio
import hashlib
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from tests.service.test_ownership import routes

import headrace
from html_pages import Page, form_token, page, text_of
from waiting import until


def test_each_job_has_a_line_with_its_status_as_word_and_shape(instance: Any, served: Any) -> None:
    client = served(instance)
    assert page(client).rows == []
    for args in ("--job-name=<b>&", "true"), ("--job-name=bad", "false"), ("-n1", "sleep", "1000"):
        instance.flux("submit", *args)
    instance.flux("submit", "--urgency=hold", "--job-name=held", "true")
    words = {"✔ Completed", "✖ Failed", "▶ Running Run", "○ Waiting Sched"}
    until(lambda: {row[1] for row in page(client).rows[1:]} == words)
    heading, *rows = page(client).rows
    assert heading[:4] == ["Job", "Status", "Name", "User"]
    by_name = {row[2]: row for row in rows}
    assert by_name["bad"][-2] == "Exit 1" and by_name["held"][-2] == "held" and by_name["<b>&"][5:7] == ["1", "1"]
    assert [row[2] for row in rows[:2]] == ["held", "sleep"]


def test_filters_are_in_the_address_and_stay_in_the_form(instance: Any, served: Any) -> None:
    client = served(instance)
    for name, command in (("one", "true"), ("two", "false")):
        instance.flux("submit", f"--job-name={name}", command)
    until(lambda: len(page(client, "/jobs?state=inactive").rows) == 3)

    def names(query: str) -> list[str]:
        return [row[2] for row in page(client, f"/jobs?{query}").rows[1:]]

    assert (
        names("state=failed") == ["two"]
        and set(names("state=inactive")) == {"two", "one"}
        and names("state=running") == []
    )
    assert names("name=one") == ["one"] and names("name=one&state=failed") == [] and names("queue=x") == []
    assert names("user=root") == names("user=0") == names("") and names("user=1") == []
    found = page(client, "/jobs?state=failed&name=%22%3E")
    assert ("option", {"value": "failed", "selected": None}) in found.elements
    assert [attrs["value"] for tag, attrs in found.elements if tag == "input" and attrs["name"] == "name"] == ['">']
    for wrong in ("state=nosuch", "user=no.such.user"):
        assert any(attrs.get("role") == "alert" for _, attrs in page(client, f"/jobs?{wrong}", 400).elements)


def test_a_page_has_fifty_jobs_and_leads_to_the_next(instance: Any, served: Any) -> None:
    client = served(instance)
    instance.flux("submit", "--cc=1-120", "--wait", "--quiet", "--job-name=job{cc}", "true")
    until(lambda: len(client.get("/v1/jobs").json()["jobs"]) == 120)
    seen: list[str] = []
    path = "/jobs?state=completed"
    sizes = []
    while path:
        found = page(client, path)
        sizes.append(len(found.rows) - 1)
        seen += [row[0] for row in found.rows[1:]]
        after = [attrs["href"] for tag, attrs in found.elements if tag == "a" and attrs.get("rel") == "next"]
        path = after[0] if after else ""
    assert sizes == [50, 50, 20] and len(set(seen)) == 120
    assert any(attrs.get("rel") == "prev" for _, attrs in page(client, "/jobs?page=2").elements)


def test_a_part_of_a_name_is_found_and_a_column_gives_the_order(instance: Any, served: Any) -> None:
    client = served(instance)
    for name, tasks in (("Sim-b", "1"), ("other", "1"), ("sim-a", "2"), ("x.sim", "1")):
        instance.flux("submit", "--urgency=hold", f"--job-name={name}", f"-n{tasks}", "true")

    def names(query: str) -> list[str]:
        return [row[2] for row in page(client, f"/jobs?{query}").rows[1:]]

    assert set(names("name=SIM")) == {"Sim-b", "sim-a", "x.sim"}
    assert names("name=sim&sort=name") == ["sim-a", "Sim-b", "x.sim"] == names("name=sim&sort=-name")[::-1]
    assert names("sort=-tasks")[0] == "sim-a" and names("sort=submitted") == ["Sim-b", "other", "sim-a", "x.sim"]
    found = page(client, "/jobs?name=sim&sort=name")
    assert [attrs["aria-sort"] for _, attrs in found.elements if "aria-sort" in attrs] == ["ascending"]
    links = [attrs["href"] for tag, attrs in found.elements if tag == "a" and "sort=" in (attrs["href"] or "")]
    assert "/jobs?name=sim&sort=-name" in links
    instance.flux("cancel", "--all")


def test_equal_jobs_are_a_row_that_opens_and_is_cancelled_as_a_whole(instance: Any, served: Any) -> None:
    client = served(instance)
    instance.flux("submit", "--quiet", "--cc=1-120", "--urgency=hold", "--job-name=same", "true")
    instance.flux("submit", "--quiet", "--urgency=hold", "--job-name=other", "true")
    found = page(client)
    assert sorted(row[0].strip() for row in found.rows[1:])[0] == "120 equal jobs" and len(found.rows) == 3
    link = next(attrs["href"] for tag, attrs in found.elements if "open=" in (attrs.get("href") or ""))
    assert len(page(client, str(link).partition("#")[0]).rows) == 3 + 120
    boxes = [str(attrs.get("value")) for _, attrs in found.elements if attrs.get("type") == "checkbox"]
    ids = max(boxes, key=len)
    given = {"csrf": form_token(client, "/jobs"), "job": ids, "confirmed": "yes"}
    assert client.post("/jobs/cancel", data=given).headers["location"] == "/jobs?cancelled=120"
    until(lambda: [row[2] for row in page(client, "/jobs?state=pending").rows[1:]] == ["other"])


def test_a_note_of_success_does_not_stay_above_a_failure(client: Any, shared: Any) -> None:
    id = shared.flux("submit", "--urgency=hold", "false").strip()
    assert "The job was submitted." in client.get(f"/jobs/{id}?said=submitted").text
    shared.flux("cancel", id)
    until(lambda: "Canceled" in client.get(f"/jobs/{id}").text)
    assert "The job was submitted." not in client.get(f"/jobs/{id}?said=submitted").text


NUMBER = "must be a whole number from {} to {}, not '{}'"
SPANS = "1h, 6h, 24h, 7d, 30d, 90d"
WRONG = [
    *(
        (f"/jobs?page={text}", "page " + NUMBER.format(1, 99999, text))
        for text in ("x", "0", "-1", "1.5", "", "9" * 20)
    ),
    (
        "/jobs?state=nosuch",
        "state must be one of pending, running, inactive, completed, failed, canceled, timeout, not",
    ),
    ("/jobs?cancelled=many", "cancelled " + NUMBER.format(0, 5000, "many")),
    ("/jobs?stat=failed", "stat is not known here; known: state, user, name, queue, sort, open, page, cancelled"),
    ("/jobs?page=1&page=2", "page must be given once, not as '1' and as '2'"),
    ("/jobs?name=%00", "name must be text without NUL"),
    ("/jobs?page=x&state=y", "page " + NUMBER.format(1, 99999, "x") + "; state must be one of"),
    ("/statistics?span=7y", f"span must be one of {SPANS}, not '7y'"),
    ("/statistics?span=", f"span must be one of {SPANS}, not ''"),
    ("/statistics?days=7", "days is not known here; known: span"),
    (
        "/machine?state=busy",
        "state must be one of free, partly used, full, draining, drained, excluded, down, not 'busy'",
    ),
    ("/machine?page=x", "page " + NUMBER.format(1, 99999, "x")),
    ("/people?before=x", "before " + NUMBER.format(0, (1 << 53) - 1, "x")),
    ("/people?said=hello", "said must be one of revoked, added, removed, changed, not 'hello'"),
    ("/jobs/1?said=hello", "said must be one of cancelled, signalled, ended, submitted, not 'hello'"),
    ("/jobs/1/output/events?read=x", "read " + NUMBER.format(0, (1 << 53) - 1, "x")),
    ("/login?next=//evil.example", "next must be a path of this service, such as /jobs, not '//evil.example'"),
    *(
        (f"/submit?from={text}", f"from must be the id of a job, such as f6bJQNPLu, not '{text}'")
        for text in ("nosuch", "")
    ),
    ("/queue?name=%3Cb%3E", "name is not known here; known: none"),
    ("/jobs?page=%3Cb%3E", "page " + NUMBER.format(1, 99999, "<b>")),
]


@pytest.mark.parametrize(("path", "told"), WRONG)
def test_a_wrong_parameter_is_told_with_what_would_be_right(client: Any, path: str, told: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 400 and told in unescape(text_of(answer.text)) and "<b>" not in answer.text
    assert 'role="alert"' in answer.text


def test_no_page_takes_a_parameter_that_it_does_not_know(client: Any) -> None:
    asked = [one for one in routes(client.app) if one.method == "GET" and not one.path.startswith(("/v1/", "/v2/"))]
    asked = [one for one in asked if one.path not in ("/metrics", "/openapi.json")]
    assert len(asked) >= 12
    for route in asked:
        answer = client.get(route.at({"job": "1"}) + "?nosuch=1")
        assert answer.status_code == 400 and "nosuch is not known here; known: " in answer.text, route


def test_what_forms_and_links_of_pages_send_is_right(client: Any) -> None:
    for path in ("/jobs?state=&user=&name=&queue=", "/machine?state=&page=1", "/machine?state=partly+used&page=2"):
        page(client, path)


PATHS = [
    "/jobs",
    "/jobs?state=nosuch",
    "/nosuch",
    "/login?token=x",
    "/submit",
    "/queue",
    "/machine",
    "/statistics",
    "/experiments",
    "/people",
]


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_inline_and_nothing_comes_from_elsewhere(shared: Any, served: Any, path: str) -> None:
    client = served(shared, auth="token")
    headers = {"Cookie": f"headrace-http={client.app.state.service.access.accounts.issue(None)}"}
    text = client.get(path, headers=headers, follow_redirects=True).text
    found = Page(text)
    for tag, attrs in found.elements:
        assert tag != "style" and "style" not in attrs and (tag != "script" or attrs.get("src"))
        assert not any(name.startswith("on") for name in attrs)
        for name in ("href", "src", "action"):
            assert (attrs.get(name) or "/").startswith(("/", "#")), (tag, attrs)
    labelled = [attrs for tag, attrs in found.elements if tag == "html"]
    assert labelled == [{"lang": "en"}] and re.search("<title>.+ · Headrace</title>", text)


@pytest.mark.parametrize("path", ["/jobs", "/submit", "/queue", "/machine", "/statistics", "/people"])
def test_the_first_view_is_small(client: Any, path: str) -> None:
    found = page(client, path)
    loads = [attrs["href"] for tag, attrs in found.elements if tag == "link"]
    loads += [attrs["src"] for tag, attrs in found.elements if tag == "script"]
    answers = [client.get(load) for load in (path, *loads)]
    assert all(answer.status_code == 200 for answer in answers)
    assert len(answers) <= 10 and sum(len(answer.content) for answer in answers) <= 150_000


def test_scripts_are_those_that_were_checked(client: Any) -> None:
    folder = Path(headrace.__file__).parent / "service/pages/static"
    sums = (folder / "vendor/SHA256SUMS").read_text().splitlines()[1:]
    files = {path.name for path in (folder / "vendor").iterdir()} - {"SHA256SUMS"}
    assert {line.split()[1] for line in sums} == files
    for line in sums:
        sum, name = line.split()
        assert hashlib.sha256((folder / "vendor" / name).read_bytes()).hexdigest() == sum
    assert (folder / "pages.js").stat().st_size <= 15_000
    assert "prefers-color-scheme: dark" in client.get("/static/style.css").text


def test_the_address_that_was_printed_opens_the_page_once(shared: Any, served: Any) -> None:
    client = served(shared, auth="token")
    access = client.app.state.service.access
    assert any(attrs.get("role") == "alert" for _, attrs in page(client, "/jobs", 401).elements)
    page(client, "/login?token=x", 401)
    token = access.logins.issue()
    answer = client.get(f"/login?token={token}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "samesite=lax" in cookie.lower() and "Max-Age=36000" in cookie
    page(client)
    # Who is in may open it again, who is not may not.
    assert client.get(f"/login?token={token}").status_code == 303
    client.cookies.clear()
    page(client, f"/login?token={token}", 401)
    assert not asyncio.run(access.accounts.of_token(token))


def test_a_cookie_is_no_token_for_scripts(shared: Any, served: Any) -> None:
    client = served(shared, auth="token")
    client.get(f"/login?token={client.app.state.service.access.logins.issue()}")
    assert client.get("/jobs").status_code == 200 and client.get("/v1/jobs").status_code == 401


def test_an_instance_that_is_not_there_has_a_page(served: Any) -> None:
    from types import SimpleNamespace

    answer = served(SimpleNamespace(uri="local:///nosuch")).get("/jobs")
    assert answer.status_code == 503 and "/nosuch" in answer.text and "text/html" in answer.headers["content-type"]


def test_the_first_page_is_the_list_of_jobs(client: Any) -> None:
    assert client.get("/").headers["location"] == "/jobs"


def test_chosen_jobs_are_cancelled_and_the_filters_stay(instance: Any, served: Any) -> None:
    client = served(instance)
    ids = [instance.flux("submit", "--urgency=hold", f"--job-name={name}", "true").strip() for name in "abc"]
    given = {"csrf": form_token(client, "/jobs"), "job": [*ids[:2], "f1", "nosuch"]}
    assert client.post("/jobs/cancel", data={"job": ids}).status_code == 403
    asked = client.post("/jobs/cancel?state=pending&page=1", data=given)
    assert asked.status_code == 200 and "Cancel 4 jobs?" in text_of(asked.text)
    assert all(client.get(f"/v2/jobs/{id}").json()["state"] == "SCHED" for id in ids)
    chosen = next(attrs["value"] for _, attrs in Page(asked.text).elements if attrs.get("name") == "job")
    given = {"csrf": form_token(client, "/jobs"), "job": chosen, "confirmed": "yes"}
    answer = client.post("/jobs/cancel?state=pending&page=1", data=given)
    assert answer.headers["location"] == "/jobs?state=pending&page=1&cancelled=2"
    assert "Cancellation requested for 2 jobs." in text_of(client.get(answer.headers["location"]).text)
    until(lambda: [row[2] for row in page(client, "/jobs?state=pending").rows[1:]] == ["c"])
