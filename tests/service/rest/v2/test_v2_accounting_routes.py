"""Banks, associations, usage and priorities by `/v2`, in an instance whose jobs have their priorities from banks."""

from __future__ import annotations

import functools
import time
from typing import Any

import pytest

from waiting import until


@pytest.fixture(scope="module")
def as_user(banked: Any) -> Any:
    """The client of a user, who logs in once."""
    return functools.cache(banked.client)


def found(client: Any, path: str, status: int = 200) -> Any:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    return answer.json()


def submit(client: Any, **fields: Any) -> str:
    answer = client.post("/v2/jobs", json={"command": "sleep 1000", **fields})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def test_banks_are_a_tree_that_everybody_sees(as_user: Any) -> None:
    banks = found(as_user("ann.x"), "/v2/banks")["banks"]
    assert [(bank["bank"], bank["parent"], bank["entitled"]) for bank in banks] == [
        *(("root", "", 1.0), ("physics", "root", 0.75), ("biology", "root", 0.25), ("plants", "biology", 0.25)),
    ]
    assert {bank["bank"]: bank["coordinators"] for bank in banks}["biology"] == ["bob.x"]
    assert not any(bank["may_edit_users"] for bank in banks)
    mays = {
        bank["bank"]: (bank["may_edit"], bank["may_edit_users"])
        for bank in found(as_user("bob.x"), "/v2/banks")["banks"]
    }
    assert mays == {"root": (False, False), "physics": (False, False), "biology": (False, True), "plants": (True, True)}


def test_associations_are_the_own_those_of_the_own_bank_or_all(as_user: Any) -> None:
    def users(name: str, query: str = "") -> set[str]:
        return {row["user"] for row in found(as_user(name), f"/v2/associations{query}")["associations"]}

    assert users("ann.x") == {"ann.x"}
    assert users("ann.x", "?user=bob.x") == users("ann.x", "?bank=plants") == users("eve.x") == set()
    assert users("bob.x") == {"bob.x", "carl.x"}
    assert users("boss.x") >= {"ann.x", "bob.x", "carl.x", "boss.x"}
    assert users("boss.x", "?bank=plants&user=carl.x") == {"carl.x"}
    (ann,) = found(as_user("ann.x"), "/v2/associations")["associations"]
    assert (ann["userid"], ann["bank"], ann["limits"]["max_running_jobs"]) == (200_000, "physics", 2)
    assert ann["limits"]["max_nodes"] is None and ann["queues"] == [] and ann["projects"] == ["*"]


def test_a_job_has_its_bank_and_says_why_it_waits(as_user: Any) -> None:
    ann, bob, boss = (as_user(name) for name in ("ann.x", "bob.x", "boss.x"))
    # A user who names no bank gets the default one.
    running = [submit(ann), submit(ann, bank="physics", project="*")]
    until(lambda: all(found(ann, f"/v2/jobs/{id}")["state"] == "RUN" for id in running))
    assert [found(ann, f"/v2/jobs/{id}")["bank"] for id in running] == ["physics", "physics"]
    assert {job["id"]: job["project"] for job in found(ann, "/v2/jobs")["jobs"]}[running[1]] == "*"
    held = submit(ann)
    until(lambda: found(ann, f"/v2/jobs/{held}/priority")["limits"])
    why = found(ann, f"/v2/jobs/{held}/priority")
    assert (why["id"], why["user"], why["bank"], why["state"]) == (held, "ann.x", "physics", "DEPEND")
    limit = {"name": "max-running-jobs-user-limit", "about": "2 running jobs, max_running_jobs is 2"}
    assert why["limits"] == [limit] and why["priority"] is None
    assert [(term["name"], term["weight"]) for term in why["terms"]] == [
        *(("fairshare", 100_000), ("queue", 10_000), ("bank", 0), ("urgency", 1_000)),
    ]
    # A node is full, so bob's job waits; one of greater urgency is before it.
    low, high = (submit(bob, nodes=1, urgency=urgency) for urgency in (5, 15))
    until(lambda: found(bob, f"/v2/jobs/{low}/priority")["before"]["count"] == 1)
    why = found(bob, f"/v2/jobs/{low}/priority")
    assert why["before"]["banks"] == {"plants": 1} and [job["id"] for job in why["before"]["jobs"]] == [high]
    assert why["priority"] == sum(term["product"] for term in why["terms"])
    # ann's held job is behind both. She sees how many, and an administrator which.
    why = found(ann, f"/v2/jobs/{held}/priority")
    assert (why["before"]["count"], why["before"]["jobs"]) == (2, [])
    jobs = found(boss, f"/v2/jobs/{held}/priority")["before"]["jobs"]
    assert [(job["id"], job["user"], job["bank"]) for job in jobs] == [
        (high, "bob.x", "plants"),
        (low, "bob.x", "plants"),
    ]
    # Another user's job is as one that does not exist.
    assert found(bob, f"/v2/jobs/{held}/priority", 404)["detail"].startswith("no job has the id")
    for client, id in ((ann, held), (bob, low), (bob, high), *((ann, id) for id in running)):
        assert client.post(f"/v2/jobs/{id}/cancel", json={}).status_code == 200
    until(lambda: found(ann, f"/v2/jobs/{running[0]}")["state"] == "INACTIVE")
    why = found(ann, f"/v2/jobs/{running[0]}/priority")
    assert (why["state"], why["before"], why["limits"]) == ("INACTIVE", None, [])


def test_usage_is_shown_by_bank_and_over_time(as_user: Any) -> None:
    ann = as_user("ann.x")
    id = submit(ann, command="sleep 0.3")
    until(lambda: found(ann, f"/v2/jobs/{id}")["state"] == "INACTIVE")
    until(lambda: {row["bank"]: row["jobs"] for row in found(ann, "/v2/usage")["banks"]}["physics"] >= 1)
    usage = found(ann, "/v2/usage?from=-1h&parts=6")
    assert len(usage["edges"]) == 7 and usage["users"] is None
    physics = next(row for row in usage["banks"] if row["bank"] == "physics")
    assert 0.3 <= physics["usage"] <= usage["usage"] and physics["entitled"] == 0.75
    over_time = {row["bank"]: row["usage"] for row in usage["over_time"]}
    assert sum(over_time["physics"]) == pytest.approx(physics["usage"])
    assert found(ann, f"/v2/usage?to={time.time() - 7 * 86400}")["usage"] == 0
    top = found(as_user("boss.x"), "/v2/usage")["users"]
    assert "ann.x" in {row["username"] for row in top}
    until(lambda: found(ann, "/v2/associations")["associations"][0]["usage"] >= 0.3)


@pytest.mark.parametrize(
    ("query", "field"), [("from=now&to=-1h", "from"), ("parts=0", "parts"), ("parts=1001", "parts"), ("bank=a", "bank")]
)
def test_a_wrong_span_is_named(as_user: Any, query: str, field: str) -> None:
    assert found(as_user("ann.x"), f"/v2/usage?{query}", 422)["field"] == field


def test_a_coordinator_changes_the_users_of_the_bank(as_user: Any) -> None:
    bob, boss = as_user("bob.x"), as_user("boss.x")
    changed = bob.post(
        "/v2/banks/plants/users/carl.x", json={"shares": 4, "max_nodes": 3, "max_cores": 0, "max_active_jobs": None}
    ).json()
    assert (changed["shares"], changed["limits"]["max_nodes"], changed["limits"]["max_cores"]) == (4, 3, 0)
    assert changed["limits"]["max_active_jobs"] is None
    assert bob.delete("/v2/banks/plants/users/carl.x").status_code == 204
    assert found(bob, "/v2/associations?user=carl.x")["associations"][0]["active"] is False
    assert bob.delete("/v2/banks/plants/users/carl.x").status_code == 404
    answer = bob.post("/v2/banks/plants/users", json={"user": "carl.x", "shares": 2})
    assert (answer.status_code, answer.json()["active"], answer.json()["shares"]) == (201, True, 2)
    assert answer.headers["location"] == "/v2/associations?bank=plants&user=carl.x"
    assert [row["user"] for row in found(bob, answer.headers["location"])["associations"]] == ["carl.x"]
    # A user with an account of this machine, and one with an association in another bank.
    for user, userid in (("daemon", 1), ("ann.x", 200_000)):
        answer = bob.post("/v2/banks/plants/users", json={"user": user})
        assert (answer.status_code, answer.json()["userid"]) == (201, userid)
        assert bob.delete(f"/v2/banks/plants/users/{user}").status_code == 204
    assert bob.post("/v2/banks/plants", json={"shares": 2}).json()["shares"] == 2
    assert boss.post("/v2/banks/plants", json={"shares": 1}).json()["shares"] == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        (
            "post",
            "plants/users",
            {"user": "nobody.x"},
            422,
            "user is not known: an administrator can add",
        ),
        # Known to the service alone: a coordinator cannot choose user ids.
        ("post", "plants/users", {"user": "eve.x"}, 422, "user is not known: an administrator can add"),
        ("post", "plants/users", {"user": "bob.x"}, 400, "association bob.x,plants already active"),
        ("post", "plants/users", {"shares": 1}, 422, "user is required"),
        ("post", "plants/users/bob.x", {"userid": 0}, 422, "userid is not known here"),
        ("post", "plants/users/bob.x", {"default_bank": "plants"}, 422, "default_bank is not known here"),
        ("post", "plants/users/bob.x", {"fairshare": 1}, 422, "fairshare is not known here"),
        ("post", "plants/users/bob.x", {"shares": -1}, 422, "shares must be a whole number from 0"),
        ("post", "plants/users/bob.x", {"max_nodes": "4"}, 422, "max_nodes must be a whole number"),
        ("post", "plants/users/bob.x", {"queues": "a"}, 422, "queues must be a list of names"),
        ("post", "plants/users/bob.x", {"queues": ["a,b"]}, 422, "queues must be names without commas"),
        ("post", "plants/users/bob.x", {"queues": ["nosuch"]}, 400, "queue nosuch does not exist"),
        ("post", "plants/users/bob.x", {}, 422, "shares or a limit is required"),
        ("post", "plants/users/nobody.x", {"shares": 1}, 404, "the user nobody.x is not in the bank plants"),
        ("post", "nosuch/users/bob.x", {"shares": 1}, 404, "there is no bank nosuch"),
        ("post", "a/b/users/bob.x", {"shares": 1}, 404, "there is no bank a/b"),
        ("post", "biology", {"shares": 9}, 403, "the shares of biology are for the coordinators of the banks above it"),
        ("post", "physics", {"shares": 9}, 403, "you are not a coordinator of physics or of a bank above it"),
        ("post", "plants", {}, 422, "shares is required"),
        ("post", "plants", {"shares": 0}, 422, "shares must be a whole number from 1"),
        ("delete", "physics/users/ann.x", None, 403, "you are not a coordinator of physics"),
    ],
)
def test_a_wrong_change_is_refused_with_a_reason(
    as_user: Any, method: str, path: str, body: Any, status: int, text: str
) -> None:
    bob = as_user("bob.x")
    before = found(as_user("boss.x"), "/v2/associations")["associations"]
    answer = bob.request(method, f"/v2/banks/{path}", json=body)
    assert (answer.status_code, text in answer.json()["detail"]) == (status, True), answer.text
    after = found(as_user("boss.x"), "/v2/associations")["associations"]
    assert [{**row, "usage": 0, "fairshare": 0, "place": 0} for row in before] == [
        {**row, "usage": 0, "fairshare": 0, "place": 0} for row in after
    ]


def test_an_administrator_adds_a_user_of_the_service_with_the_user_id(as_user: Any) -> None:
    boss = as_user("boss.x")
    answer = boss.post("/v2/banks/physics/users", json={"user": "eve.x", "max_nodes": 1})
    assert answer.status_code == 201 and answer.json()["userid"] == 200_003
    until(lambda: as_user("eve.x").post("/v2/jobs", json={"command": "true"}).status_code == 201)
    answer = boss.post("/v2/banks/physics/users", json={"user": "nobody.x"})
    assert answer.status_code == 422 and "flux account add-user --userid" in answer.json()["detail"]
    assert boss.delete("/v2/banks/physics/users/eve.x").status_code == 204


def test_a_submission_with_a_bank_or_project_of_others_is_refused(as_user: Any) -> None:
    ann = as_user("ann.x")
    answer = ann.post("/v2/jobs", json={"command": "true", "bank": "biology"})
    assert (answer.status_code, answer.json()["field"]) == (400, "bank") and "uid: 200000" in answer.json()["detail"]
    answer = ann.post("/v2/jobs", json={"command": "true", "project": "moon"})
    assert (answer.status_code, answer.json()["field"]) == (400, "project")


def test_an_instance_without_accounting_says_so(client: Any, shared: Any, served: Any) -> None:
    id = client.post("/v2/jobs", json={"command": "true"}).json()["id"]
    for path in ("banks", "associations", "usage", f"jobs/{id}/priority"):
        assert "this instance has no accounting" in found(client, f"/v2/{path}", 501)["detail"]
    assert client.post("/v2/banks/a", json={"shares": 1}).status_code == 501
    assert found(client, "/v2/jobs/f1/priority", 404)


def test_an_accounting_service_that_is_away_is_told(banked: Any, as_user: Any) -> None:
    boss = as_user("boss.x")
    banked.instance.flux("module", "remove", "accounting")
    try:
        assert "the accounting service does not answer" in found(boss, "/v2/banks", 503)["detail"]
    finally:
        banked.instance.flux("module", "load", "accounting")
    until(lambda: boss.get("/v2/banks").status_code == 200)
