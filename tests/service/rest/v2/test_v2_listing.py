"""Pages of jobs, on a broker of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.formats.spec import jobid
from waiting import until

FIELDS = "id,name,state,t_submit,priority"


@pytest.fixture(scope="module")
def jobs(modules_own: Any, served: Any) -> Iterator[Any]:
    """A client; there are 12 jobs: 5 have ended (one of them failed), 1 runs, 6 wait."""
    client, flux = served(modules_own), modules_own.flux
    for number in range(4):
        flux("submit", "--wait", f"--job-name=ended{number}", "true")
    flux("submit", "--job-name=bad", "false")
    until(lambda: len(client.get("/v2/jobs?state=inactive").json()["jobs"]) == 5)
    flux("submit", "--job-name=runs", "-N1", "--exclusive", "sleep", "1000")
    until(lambda: client.get("/v2/jobs?state=run").json()["jobs"])
    for number in range(6):
        flux("submit", f"--job-name=waits{number}", f"--urgency={number + 10}", "-N1", "--exclusive", "true")
    until(lambda: len(client.get("/v2/jobs?state=sched").json()["jobs"]) == 6)
    yield client
    flux("cancel", "--all")


def names(client: Any, query: str = "") -> list[str]:
    return [job["name"] for job in client.get(f"/v2/jobs?{query}").json()["jobs"]]


WAITING = ["waits5", "waits4", "waits3", "waits2", "waits1", "waits0"]
ENDED = ["bad", "ended3", "ended2", "ended1", "ended0"]


def test_jobs_come_as_flux_jobs_lists_them(jobs: Any) -> None:
    assert names(jobs) == [*WAITING, "runs", *ENDED]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 11, 12])
@pytest.mark.parametrize("sort", ["", "id", "-id", "name", "-name", "t_submit", "-t_run", "queue", "-nodelist"])
def test_pages_have_each_job_once_in_order(jobs: Any, limit: int, sort: str) -> None:
    order = f"&sort={sort}" if sort else ""
    whole = names(jobs, f"limit=1000{order}")
    found, cursor = [], ""
    while True:
        answer = jobs.get(f"/v2/jobs?limit={limit}{order}{cursor}").json()
        found += [job["name"] for job in answer["jobs"]]
        assert len(answer["jobs"]) == limit or not answer["next"]
        if not answer["next"]:
            break
        cursor = f"&cursor={answer['next']}"
    assert found == whole and len(set(found)) == 12


def test_orders(jobs: Any) -> None:
    assert names(jobs, "sort=name") == sorted(names(jobs))
    assert names(jobs, "sort=-id") == sorted(names(jobs), key=lambda name: names(jobs, "sort=id").index(name))[::-1]
    assert names(jobs, "sort=id")[:6] == ["ended0", "ended1", "ended2", "ended3", "bad", "runs"]
    # What has no value comes last, either way.
    assert names(jobs, "sort=t_run")[6:] == names(jobs, "sort=t_run&state=sched")
    assert set(names(jobs, "sort=-t_run")[6:]) == set(WAITING)


def test_a_page_goes_on_where_its_last_job_was_purged(jobs: Any, modules_own: Any) -> None:
    flux = modules_own.flux
    held = flux("submit", "--urgency=hold", "--job-name=purged", "true").strip()
    flux("cancel", held)
    until(lambda: jobs.get(f"/v2/jobs/{held}").json()["state"] == "INACTIVE")
    answer = jobs.get("/v2/jobs?limit=8").json()
    assert answer["jobs"][-1]["name"] == "purged"
    flux("job", "purge", "--force", answer["jobs"][-1]["id"])
    assert names(jobs, f"limit=8&cursor={answer['next']}") == ENDED


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("state=pending", WAITING),
        ("state=RUNNING,failed", ["runs", "bad"]),
        ("state=completed", ENDED[1:]),
        ("name=runs", ["runs"]),
        ("name=nosuch", []),
        ("queue=nosuch", []),
        ("user=all&state=running", ["runs"]),
        ("user=99999", []),
        ("before=1", []),
        ("since=now", [*WAITING, "runs"]),
        ("since=-1h&before=2999-01-01T00:00:00Z&state=failed", ["bad"]),
    ],
)
def test_filters(jobs: Any, query: str, found: list[str]) -> None:
    assert names(jobs, query) == found


def test_since_and_before_are_points_in_time(jobs: Any) -> None:
    ended = jobs.get("/v2/jobs?name=ended2").json()["jobs"][0]
    assert names(jobs, f"since={ended['t_inactive']}&state=completed") == ["ended3"]
    assert names(jobs, f"before={ended['t_submit']}") == ["ended1", "ended0"]
    shown = time.strftime("%Y-%m-%dT%H:%M:%S%%2B00:00", time.gmtime(ended["t_submit"] - 1000))
    assert names(jobs, f"before={shown}") == []


def test_fields_are_those_that_were_asked_for(jobs: Any) -> None:
    (job,) = jobs.get("/v2/jobs?name=runs&fields=nnodes,returncode,dependencies,user").json()["jobs"]
    assert list(job) == ["id", "nnodes", "returncode", "dependencies", "user"] and job["nnodes"] == 1
    assert job["returncode"] is None and job["dependencies"] == [] and jobid.parse(job["id"])
    (job,) = jobs.get("/v2/jobs?name=runs&fields=annotations").json()["jobs"]
    assert "resource_summary" in job["annotations"]["sched"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("state=nosuch", "state"),
        ("state=", "state"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=%C2%B2", "limit"),
        ("limit=1&limit=2", "limit"),
        ("sort=why", "sort"),
        ("fields=nosuch", "fields"),
        ("fields=", "fields"),
        ("user=nobody-of-this-name", "user"),
        ("since=yesterdayish", "since"),
        ("since=" + "9" * 400, "since"),
        ("before=-1e999d", "before"),
        ("before=0000-00-00T00:00:00Z", "before"),
        ("name=%00", "name"),
        ("queue=a,,b", "queue"),
        ("cursor=nosuch", "cursor"),
        ("cursor=%F0%9F%98%80", "cursor"),
        ("cursor=WzEsMiwzXQ==", "cursor"),
        # ["",[5,1],1,0], ["",null,1,0], ["name",1,1,0] and ["name","x",1,0]
        ("cursor=WyIiLFs1LDFdLDEsMF0=", "cursor"),
        ("cursor=WyIiLG51bGwsMSwwXQ==", "cursor"),
        ("sort=name&cursor=WyJuYW1lIiwxLDEsMF0=", "cursor"),
        ("cursor=WyJuYW1lIiwieCIsMSwwXQ==", "cursor"),
        ("colour=red", "colour"),
    ],
)
def test_what_is_wrong_is_named(jobs: Any, query: str, field: str) -> None:
    answer = jobs.get(f"/v2/jobs?{query}")
    assert answer.status_code == 422 and answer.json()["field"] == field and field in answer.json()["detail"]


def test_each_wrong_field_is_named(jobs: Any) -> None:
    found = jobs.get("/v2/jobs?limit=x&state=y").json()
    assert [error["field"] for error in found["errors"]] == ["limit", "state"]
