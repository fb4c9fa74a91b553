"""The pages of banks and of a job's priority, without scripts: for a user, a coordinator and an administrator."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
from tests.service.conftest import forms_token

from headrace.service.pages import job_priority, shares
from html_pages import page, text_of
from waiting import until


@pytest.fixture(scope="module")
def as_user(banked: Any) -> Any:
    """The page's client of a user, who logs in once."""
    return functools.cache(functools.partial(banked.client, cookie=True))


def send(client: Any, path: str, **fields: str) -> Any:
    return client.post(path, data={"csrf": forms_token(client, "/jobs"), **fields})


def row_of(client: Any, path: str, name: str) -> list[str]:
    return next(row for row in page(client, path).rows if name in row[0])


def test_the_tree_and_the_own_share(as_user: Any) -> None:
    ann = as_user("ann.x")
    rows = [row[:3] for row in page(ann, "/banks").rows[:5]]
    assert rows == [
        *(["Bank", "Shares", "Part by shares"], ["root", "1", "100 %"], ["\N{EM SPACE}physics", "3", "75 %"]),
        *(["\N{EM SPACE}biology", "1", "25 %"], ["\N{EM SPACE}\N{EM SPACE}plants", "1", "25 %"]),
    ]
    text = text_of(ann.get("/banks").text)
    assert "physics (default)" in text and "Jobs that run, at most 2" in text and "bob.x" in text
    assert "Usage over time in numbers" in text and "Usage against shares in numbers" in text
    assert "You are in no bank" in text_of(as_user("eve.x").get("/banks").text)
    assert ann.get("/banks?span=2h").status_code == 400
    assert ann.get("/banks/nosuch").status_code == 404


def test_a_user_sees_only_the_own_place_in_a_bank(as_user: Any) -> None:
    ann = as_user("ann.x")
    text = ann.get("/banks/physics").text
    assert "Your place in it" in text and "dora.x" not in text and "Add a user" not in text
    assert "Change the shares" not in text
    text = ann.get("/banks/plants").text
    assert "You are not in this bank." in text and "carl.x" not in text
    answer = ann.get("/banks/physics/users/ann.x")
    assert answer.status_code == 403 and "you are not a coordinator of physics" in text_of(answer.text)


def test_a_coordinator_changes_the_bank(as_user: Any) -> None:
    bob = as_user("bob.x")
    text = bob.get("/banks/plants").text
    assert (
        "carl.x" in text and "Change the shares" in text and "Change the shares" not in bob.get("/banks/biology").text
    )
    form = {"shares": "3", "max_running_jobs": "4", "max_active_jobs": "", "max_sched_jobs": "", "max_nodes": "2"}
    answer = send(bob, "/banks/plants/users/carl.x/change", **form, max_cores="", queues="", projects="")
    assert answer.headers["location"] == "/banks/plants?said=changed"
    assert "The user is changed." in text_of(bob.get(answer.headers["location"]).text)
    row = row_of(bob, "/banks/plants", "carl.x")
    assert (row[1], row[-1]) == ("3", "jobs that run: 4; nodes of running jobs: 2")
    elements = page(bob, "/banks/plants/users/carl.x").elements
    values = {attrs["name"]: attrs["value"] for tag, attrs in elements if tag == "input"}
    assert (values["shares"], values["max_running_jobs"], values["max_active_jobs"]) == ("3", "4", "")
    assert send(bob, "/banks/plants/users/carl.x/remove").headers["location"] == "/banks/plants?said=removed"
    assert "inactive" in row_of(bob, "/banks/plants", "carl.x")[0]
    assert "carl.x is inactive" in text_of(bob.get("/banks/plants/users/carl.x").text)
    assert send(bob, "/banks/plants/users", user="carl.x", shares="1").headers["location"] == "/banks/plants?said=added"
    assert row_of(bob, "/banks/plants", "carl.x")[1] == "1"
    assert send(bob, "/banks/plants/change", shares="4").headers["location"] == "/banks/plants?said=bank"
    assert "Shares 4 " in text_of(bob.get("/banks/plants").text)
    assert send(bob, "/banks/plants/change", shares="1").status_code == 303
    assert [row[0] for row in page(bob, "/banks/plants?user=CAR").rows][1:] == ["carl.x"]


def test_what_is_wrong_in_a_form_is_said_and_nothing_is_changed(as_user: Any) -> None:
    bob = as_user("bob.x")
    before = row_of(bob, "/banks/plants", "bob.x")
    for fields, text in (
        ({"shares": "many"}, "shares must be a whole number from 0"),
        ({"max_nodes": "-1"}, "max_nodes must be a whole number from 0"),
        ({"queues": "nosuch"}, "queue nosuch does not exist"),
        ({"userid": "0"}, "userid is not known here"),
    ):
        answer = send(bob, "/banks/plants/users/bob.x/change", **fields)
        assert answer.status_code == 422 and text in text_of(answer.text)
        (name,) = fields
        assert name == "userid" or f'name="{name}" value="{fields[name]}"' in answer.text
    for path, fields, text in (
        ("users", {"user": "nobody.x"}, "user is not known: an administrator can add"),
        ("users", {"user": "bob.x"}, "association bob.x,plants already active"),
        ("users", {"user": " "}, "user must not be empty"),
        ("change", {"shares": "0"}, "shares must be a whole number from 1"),
    ):
        answer = send(bob, f"/banks/plants/{path}", **fields)
        assert answer.status_code == 422 and text in text_of(answer.text), answer.text
    assert row_of(bob, "/banks/plants", "bob.x")[1] == before[1]
    # Without the token of the session's forms nothing is changed, whoever asks.
    for path in ("users", "users/carl.x/change", "users/carl.x/remove", "change"):
        assert bob.post(f"/banks/plants/{path}", data={"user": "carl.x", "shares": "9"}).status_code == 403
    assert row_of(bob, "/banks/plants", "bob.x")[1] == before[1]


def test_a_job_says_why_it_has_its_priority(as_user: Any) -> None:
    ann, boss = as_user("ann.x"), as_user("boss.x")
    made = [send(ann, "/submit", command="sleep 1000", bank="physics") for _ in range(3)]
    ids = [answer.headers["location"].rpartition("/")[2].partition("?")[0] for answer in made]
    until(lambda: "max-running-jobs-user-limit" in ann.get(f"/jobs/{ids[2]}/priority").text)
    text = text_of(ann.get(f"/jobs/{ids[2]}/priority").text)
    assert "Held by the limit max-running-jobs-user-limit: 2 running jobs, max_running_jobs is 2." in text
    assert "No waiting job of its queue comes before it." in text and "fairshare" in text
    # The job's page loads this part, and has a link to it without scripts.
    shown = ann.get(f"/jobs/{ids[0]}").text
    assert f'hx-get="/jobs/{ids[0]}/priority" hx-trigger="load"' in shown
    assert f'<a href="/jobs/{ids[0]}/priority">' in shown and "Bank physics" in text_of(shown)
    assert boss.get(f"/jobs/{ids[0]}/priority").status_code == 200
    bob = as_user("bob.x").get(f"/jobs/{ids[0]}/priority")
    assert bob.status_code == 404 and "no job has the id" in text_of(bob.text)
    for id in ids:
        assert send(ann, f"/jobs/{id}/cancel").status_code == 303
    until(lambda: "Canceled" in ann.get(f"/jobs/{ids[0]}").text)
    assert "Why it has its priority" not in ann.get(f"/jobs/{ids[0]}").text


def test_the_form_of_a_job_says_that_a_bank_is_not_the_users(as_user: Any) -> None:
    answer = send(as_user("ann.x"), "/submit", command="true", bank="biology")
    assert answer.status_code == 422 and "bank is refused: " in text_of(answer.text)


def test_in_private_mode_usage_is_for_administrators(banked: Any, as_user: Any, tmp_path: Any) -> None:
    flux = banked.instance.flux
    flux("config", "load", str(with_private_mode(flux("config", "get"), tmp_path)))
    try:
        text = text_of(as_user("ann.x").get("/banks").text)
        assert "Usage over time is shown to administrators only" in text and "physics" in text
        assert "Usage over time in numbers" in text_of(as_user("boss.x").get("/banks").text)
    finally:
        flux("config", "load", str(with_private_mode(flux("config", "get"), tmp_path, False)))
    until(lambda: "Usage over time in numbers" in text_of(as_user("ann.x").get("/banks").text))


def with_private_mode(config: str, folder: Any, on: bool = True) -> Any:
    """A file with a configuration as JSON in which private mode is on or off."""
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(config), "access": {"private-mode": on}}))
    return file


def test_an_instance_without_accounting_has_a_page_that_says_so(client: Any) -> None:
    text = text_of(client.get("/banks").text)
    assert client.get("/banks").status_code == 501 and "This instance has no accounting" in text
    assert client.get("/banks/a").status_code == 501


@pytest.mark.parametrize(
    ("before", "text"),
    [
        ({"count": 0, "banks": {}, "jobs": []}, "No waiting job of its queue comes before it."),
        ({"count": 1, "banks": {"A": 1}, "jobs": []}, "One waiting job comes before it: 1 of A."),
        ({"count": 5, "banks": {"A": 4, "": 1}, "jobs": []}, "5 waiting jobs come before it: 4 of A, 1 of no bank."),
        (None, ""),
    ],
)
def test_the_jobs_before_are_counted_by_bank(before: Any, text: str) -> None:
    found = {"priority": None, "note": "", "bank": "A", "terms": [], "limits": [], "before": before}
    assert job_priority.priority(found).before == text


@pytest.mark.parametrize(
    ("usage", "text"), [(0, "0 h"), (3, "3 s"), (90, "1.5 min"), (3600, "1 h"), (36 * 3600.0, "36 h")]
)
def test_a_usage_is_shown_in_a_unit_that_suits_it(usage: float, text: str) -> None:
    assert shares.length(usage) == text


def test_charts_have_the_banks_with_most_usage_and_tables_all() -> None:
    many = [f"b{number}" for number in range(8)]
    tree = [{"bank": "root", "depth": 0}, *({"bank": bank, "depth": 1} for bank in many)]
    numbers = {"entitled": 0.1, "part": 0.1, "usage": 7200.0, "jobs": 1}
    found = {
        "usage": 7200.0,
        "banks": [{**bank, **numbers} for bank in tree],
        "edges": [0.0, 10.0, 20.0],
        "over_time": [{"bank": bank, "usage": [3600.0 * at, 0.0]} for at, bank in enumerate(many)],
    }
    over_time, against = shares.figures(found)
    assert over_time.svg.count('<path class="fill') == 6 and ">b7<" in over_time.svg and ">b1<" not in over_time.svg
    assert over_time.columns == ["From", *(f"{bank} (h)" for bank in many)]
    assert [row[-1] for row in over_time.rows] == ["0", "7"] and len(against.rows) == 9
    assert shares.figures({**found, "banks": tree[:0], "over_time": []})[0].rows == []
