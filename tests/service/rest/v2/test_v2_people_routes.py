"""Users, tokens and the audit by `/v2`, of a service with several users on a real broker and of one with the owner."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.service.conftest import PASSWORD


def everything(client: Any, path: str, name: str, limit: int) -> list[Any]:
    """All rows of a list, page by page."""
    found: list[Any] = []
    query = f"limit={limit}"
    while query:
        answer = client.get(f"/v2/{path}?{query}").json()
        assert len(answer[name]) <= limit
        found += answer[name]
        query = answer["next"] and f"limit={limit}&cursor={answer['next']}"
    return found


def test_a_token_is_shown_once_listed_and_revoked(group: Any) -> None:
    ann = group.client("ann.x")
    answer = ann.post("/v2/tokens", json={"note": "for a script", "minutes": 5})
    made = answer.json()
    assert answer.status_code == 201 and answer.headers["location"] == f"/v2/tokens/{made['id']}"
    assert made["ends"] - made["issued"] == 300 and made["user"] == "ann.x" and not made["session"]
    headers = {"Authorization": f"Bearer {made['token']}"}
    assert group.client().get("/v2/me", headers=headers).json()["name"] == "ann.x"
    listed = ann.get("/v2/tokens").json()["tokens"]
    assert {one["user"] for one in listed} == {"ann.x"} and listed[0]["note"] == "for a script"
    assert made["token"] not in ann.get("/v2/tokens").text and "hash" not in listed[0]
    assert ann.delete(f"/v2/tokens/{made['id']}").status_code == 204
    assert ann.delete(f"/v2/tokens/{made['id']}").status_code == 404
    assert group.client().get("/v2/me", headers=headers).status_code == 401


def test_a_token_is_valid_no_longer_than_one_of_a_login(group: Any) -> None:
    made = group.client("ann.x").post("/v2/tokens", json={"minutes": 100_000}).json()
    assert made["ends"] - made["issued"] == 600 * 60


def test_tokens_of_all_are_an_administrators(group: Any) -> None:
    ann, bob, boss = (group.client(name) for name in ("ann.x", "bob.x", "boss.x"))
    made = [client.post("/v2/tokens").json()["id"] for client in (ann, bob, ann, bob, ann)]
    assert ann.get("/v2/tokens?user=ann.x").status_code == 200
    for other in ("bob.x", "all", "nosuch.x"):
        assert ann.get(f"/v2/tokens?user={other}").status_code == 403
    assert boss.get("/v2/tokens?user=nosuch").json()["detail"] == "there is no user 'nosuch'"
    assert {one["user"] for one in boss.get("/v2/tokens?user=bob.x").json()["tokens"]} == {"bob.x"}
    assert {one["user"] for one in everything(boss, "tokens", "tokens", 1000)} == {"boss.x"}
    ids = [one["id"] for one in boss.get("/v2/tokens?user=all&limit=1000").json()["tokens"]]
    assert set(made) <= set(ids) and len(ids) == len(set(ids))
    assert boss.delete(f"/v2/tokens/{made[0]}").status_code == 204
    assert made[0] not in {one["id"] for one in everything(ann, "tokens", "tokens", 2)}
    assert {made[2], made[4]} <= {one["id"] for one in everything(ann, "tokens", "tokens", 2)}


def test_users_are_added_changed_and_removed_by_administrators(group: Any) -> None:
    boss = group.client("boss.x")
    answer = boss.post("/v2/users", json={"name": "new.y", "password": PASSWORD})
    made = answer.json()
    assert answer.status_code == 201 and answer.headers["location"] == "/v2/users/new.y" and not made["admin"]
    assert "password" not in made and 200_000 <= made["userid"] < 300_000
    assert boss.post("/v2/users", json={"name": "new.y", "password": PASSWORD}).status_code == 400
    listed = everything(boss, "users", "users", 2)
    assert [one["name"] for one in listed] == sorted(one["name"] for one in listed) and made in listed
    new = group.client("new.y")
    assert new.get("/v2/users").status_code == 403
    assert boss.post("/v2/users/new.y", json={"admin": True}).json()["admin"]
    assert new.get("/v2/users").status_code == 200
    assert boss.post("/v2/users/new.y", json={"password": "another password"}).status_code == 200
    assert new.get("/v2/me").status_code == 401, "a new password ends the tokens"
    assert boss.delete("/v2/users/new.y").status_code == 204
    assert boss.delete("/v2/users/new.y").status_code == 404
    lines = boss.get("/v2/audit?limit=1000").json()["audit"]
    added = next(line for line in lines if line.get("account") == "new.y")
    assert (added["path"], added["user"], added["status"]) == ("/v2/users", "boss.x", 201)


@pytest.mark.parametrize("name", ["root", "daemon"])
def test_no_administrator_adds_the_owner_or_a_user_of_the_system(group: Any, name: str) -> None:
    answer = group.client("boss.x").post("/v2/users", json={"name": name, "password": PASSWORD, "admin": True})
    assert answer.status_code == 403 and "for the owner alone" in answer.json()["detail"]


def test_there_is_always_an_administrator(group: Any) -> None:
    boss = group.client("boss.x")
    for answer in (boss.delete("/v2/users/boss.x"), boss.post("/v2/users/boss.x", json={"admin": False})):
        assert answer.status_code == 403 and "the only administrator" in answer.json()["detail"]
    assert boss.get("/v2/users").status_code == 200


@pytest.mark.parametrize(
    ("path", "given", "field"),
    [
        ("users", {"name": "x"}, "password"),
        ("users", {"name": "", "password": "x"}, "name"),
        ("users", {"name": "x", "password": "x", "admin": 1}, "admin"),
        ("users/ann.x", {"name": "x"}, "name"),
        ("tokens", {"minutes": 0}, "minutes"),
        ("tokens", {"note": "x" * 201}, "note"),
        ("tokens", {"user": "bob.x"}, "user"),
    ],
)
def test_a_wrong_field_is_named(group: Any, path: str, given: dict[str, Any], field: str) -> None:
    answer = group.client("boss.x").post(f"/v2/{path}", json=given)
    assert answer.status_code == 422 and answer.json()["field"] == field


def test_the_audit_is_read_page_by_page_each_user_the_own_lines(group: Any) -> None:
    ann, bob, boss = (group.client(name) for name in ("ann.x", "bob.x", "boss.x"))
    for number in range(5):
        for client in (ann, bob):
            client.post(f"/v2/jobs/f{number + 1}/cancel")
    mine = everything(ann, "audit", "audit", 3)
    assert {line["user"] for line in mine} == {"ann.x"} and len(mine) >= 5
    assert [line["path"] for line in mine[:5]] == [f"/v2/jobs/f{number}/cancel" for number in (5, 4, 3, 2, 1)]
    assert [line["time"] for line in mine] == sorted((line["time"] for line in mine), reverse=True)
    everybodys = everything(boss, "audit", "audit", 7)
    # A change has two lines in the file, and one here.
    kept = [json.loads(line) for line in group.audit.read_text().splitlines()]
    assert len(everybodys) == sum(line["status"] is not None for line in kept) < len(kept)
    assert {"ann.x", "bob.x"} <= {line["user"] for line in everybodys}


@pytest.mark.parametrize("path", ["tokens", "users", "audit"])
@pytest.mark.parametrize("cursor", ["x", "WzFd", "WyJhIl0=", "W10=", "WzEsWyJhIl1d", "WyJhIiwxXQ==", "bnVsbA=="])
def test_a_cursor_that_no_answer_had_is_refused_or_a_place(group: Any, path: str, cursor: str) -> None:
    answer = group.client("boss.x").get(f"/v2/{path}?cursor={cursor}")
    assert answer.status_code in (200, 422) and (answer.status_code == 200 or answer.json()["field"] == "cursor")


def test_a_service_of_the_owner_alone(shared: Any, served: Any) -> None:
    client = served(shared, auth="token")
    client.headers["Authorization"] = f"Bearer {client.app.state.service.access.accounts.issue(None)}"
    me = client.get("/v2/me").json()
    assert client.get("/v2/users").json()["users"] == [
        {"name": me["name"], "userid": me["userid"], "admin": True, "added": None}
    ]
    made = client.post("/v2/tokens", json={"note": "one"}).json()
    assert [one["note"] for one in client.get("/v2/tokens").json()["tokens"]] == ["one", ""]
    assert client.delete(f"/v2/tokens/{made['id']}").status_code == 204
    assert client.get("/v2/me", headers={"Authorization": f"Bearer {made['token']}"}).status_code == 401
    answer = client.post("/v2/users", json={"name": "a", "password": "b"})
    assert answer.status_code == 400 and "--auth users" in answer.json()["detail"]
    assert "--audit" in client.get("/v2/audit").json()["detail"] and client.get("/v2/audit").status_code == 404
