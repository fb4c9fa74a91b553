"""The page of people, for a user, an administrator and the owner alone, without script as here all is."""

from __future__ import annotations

import re
from typing import Any

from tests.service.conftest import PASSWORD, forms_token, log_in

from html_pages import page, text_of


def send(client: Any, path: str, **fields: str) -> Any:
    return client.post(f"/people{path}", data={"csrf": forms_token(client, "/people"), **fields})


def test_a_user_makes_and_revokes_the_own_tokens_and_sees_no_others(group: Any) -> None:
    ann, boss = group.client("ann.x", cookie=True), group.client("boss.x", cookie=True)
    send(boss, "/tokens", note="note of boss")
    answer = send(ann, "/tokens", note="my <script>", minutes="5")
    found = re.search(r'aria-label="The new token">([\w-]{43})<', answer.text)
    assert answer.status_code == 201 and found is not None and "my <script>" not in answer.text
    headers = {"Authorization": f"Bearer {found[1]}"}
    assert group.client().get("/v2/me", headers=headers).json()["name"] == "ann.x"
    shown = ann.get("/people").text
    assert found[1] not in shown and "note of boss" not in shown and "Add a user" not in shown
    rows = [row for row in page(ann, "/people").rows if "my <script>" in row]
    assert rows[0][1:3] == ["ann.x", "script"]
    answer = send(ann, f"/tokens/{rows[0][0]}/revoke")
    assert "The token is revoked." in text_of(ann.get(answer.headers["location"]).text)
    assert group.client().get("/v2/me", headers=headers).status_code == 401
    assert send(ann, f"/tokens/{rows[0][0]}/revoke").status_code == 404
    assert send(ann, "/tokens", minutes="soon").status_code == 422


def test_an_administrator_adds_changes_and_removes_users(group: Any) -> None:
    boss = group.client("boss.x", cookie=True)
    answer = send(boss, "/users", name="page.y", password=PASSWORD)
    assert answer.headers["location"] == "/people?said=added"
    assert log_in(group.client(), "page.y").status_code == 303
    assert "there is a user" in text_of(send(boss, "/users", name="page.y", password=PASSWORD).text)

    def role() -> str:
        return next(row[2] for row in page(boss, "/people").rows if row[0] == "page.y")

    assert role() == "user"
    send(boss, "/users/page.y/change", admin="yes")
    assert role() == "administrator"
    send(boss, "/users/page.y/change", admin="no", password="another password")
    assert role() == "user" and log_in(group.client(), "page.y", "another password").status_code == 303
    assert send(boss, "/users/page.y/change", admin="maybe").status_code == 400
    send(boss, "/users/page.y/remove")
    assert not any(row[0] == "page.y" for row in page(boss, "/people").rows)


def test_a_user_cannot_do_what_is_an_administrators(group: Any) -> None:
    ann = group.client("ann.x", cookie=True)
    assert send(ann, "/users", name="z.y", password=PASSWORD).status_code == 403
    for deed in ("change", "remove"):
        assert send(ann, f"/users/ann.x/{deed}", admin="yes").status_code == 403


def test_changes_need_the_token_of_the_sessions_forms(group: Any) -> None:
    boss = group.client("boss.x", cookie=True)
    for path in ("/tokens", "/users", "/users/ann.x/change", "/users/ann.x/remove"):
        assert boss.post(f"/people{path}", data={"name": "q.y", "password": PASSWORD}).status_code == 403
    assert not any(row[0] == "q.y" for row in page(boss, "/people").rows)


def test_the_audit_of_a_user_and_of_all(group: Any) -> None:
    ann, boss = group.client("ann.x", cookie=True), group.client("boss.x", cookie=True)
    ann.post("/people/users/of-ann/remove", data={"csrf": forms_token(ann, "/people")})
    boss.post("/people/users/of-boss/remove", data={"csrf": forms_token(boss, "/people")})
    mine, everybodys = ann.get("/people").text, boss.get("/people").text
    assert "/people/users/of-ann/remove" in mine and "of-boss" not in mine
    assert "of-ann" in everybodys and "of-boss" in everybodys
    for _ in range(101):
        ann.post("/people/tokens")
    older = [attrs["href"] for tag, attrs in page(ann, "/people").elements if tag == "a" and attrs.get("rel") == "next"]
    assert len(older) == 1 and "of-ann" in ann.get(older[0].partition("#")[0]).text


def test_the_owner_alone_has_tokens_and_no_users(client: Any, shared: Any, served: Any) -> None:
    assert "This service asks for no token." in text_of(client.get("/people").text)
    owner = served(shared, auth="token")
    owner.get(f"/login?token={owner.app.state.service.access.logins.issue()}")
    answer = send(owner, "/tokens", note="of the owner")
    assert "of the owner" in answer.text and "Add a user" not in answer.text and "keeps no audit" in answer.text
