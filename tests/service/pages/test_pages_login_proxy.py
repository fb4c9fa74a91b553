"""The pages behind a proxy that logs users in: there is no form to log in, and none to log out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.service.conftest import forms_token

from headrace.service.store import database, users


def test_pages_are_those_of_the_user_whom_the_proxy_names(shared: Any, served: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "api.sqlite")
    store = database.open_file(path)
    users.add(store, "ann.x", "a password", admin=False)
    client = served(shared, auth="proxy", database=path, proxy_header="X-User")
    assert "has named no user" in client.get("/jobs").text and client.get("/jobs").status_code == 401
    client.headers["X-User"] = "ann.x"
    found = client.get("/jobs").text
    assert "ann.x" in found and "Log out" not in found
    assert client.get("/login").headers["location"] == "/jobs"
    assert client.post("/login", data={"name": "ann.x", "password": "a password"}).status_code == 401
    answer = client.post("/people/tokens", data={"csrf": forms_token(client, "/people"), "note": "one"})
    assert answer.status_code == 201 and "one" in answer.text
    assert client.post("/people/tokens", data={"note": "two"}).status_code == 403
    assert client.get("/v1/auth").json()["backend"] == "proxy"
