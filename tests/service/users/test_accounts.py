"""A service whose store of users fails while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_disk import fill, mounted
from tests.service.conftest import PASSWORD, TestClient, forms_token, log_in

from headrace.service.app import create_app
from headrace.service.settings import Settings
from headrace.service.store import database, users
from headrace.service.users.accounts import Log


def service(path: Path, **settings: Any) -> Any:
    """A client of a service whose store has ann, and a token of hers."""
    store = database.open_file(str(path))
    users.add(store, "ann.x", PASSWORD, False)
    app = create_app(Settings(auth="users", database=str(path), **settings))
    client = TestClient(app, follow_redirects=False, base_url="http://localhost")
    answer = client.post("/v1/login/access-token", data={"username": "ann.x", "password": PASSWORD})
    client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
    return client


def test_on_a_full_disk_logins_and_tokens_are_answered_503(tmp_path: Path, capfd: Any) -> None:
    with mounted(tmp_path / "disk", "size=128k") as disk:
        client = service(disk / "api.sqlite")
        filler = fill(disk)
        answer = client.post("/v2/tokens", json={})
        assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
        assert answer.json()["detail"] == "the store of users cannot be used: database or disk is full"
        assert answer.json()["errno"] is None
        answer = client.post("/v1/login/access-token", data={"username": "ann.x", "password": PASSWORD})
        assert answer.status_code == 503 and "disk is full" in answer.json()["Message"]
        answer = log_in(client, "ann.x")
        assert answer.status_code == 503 and "disk is full" in answer.text
        assert client.get("/v2/me").status_code == 200
        filler.unlink()
        assert client.post("/v2/tokens", json={}).status_code == 201 and log_in(client, "ann.x").status_code == 303
    said = capfd.readouterr().err
    assert said == f"headrace-api: {disk}/api.sqlite: database or disk is full: users are answered 503\n"


def test_a_damaged_store_is_answered_503_with_one_line_in_the_log(tmp_path: Path, capfd: Any) -> None:
    path = tmp_path / "api.sqlite"
    client = service(path)
    kept = path.read_bytes()
    path.write_bytes(b"what is this? " * 1000)
    for _ in range(5):
        answer = client.get("/v2/jobs")
        assert answer.status_code == 503 and answer.json()["detail"].endswith("file is not a database")
        assert log_in(client, "ann.x").status_code == 503
    assert forms_token(client)
    said = capfd.readouterr().err
    assert said == f"headrace-api: {path}: file is not a database: users are answered 503\n"
    path.write_bytes(kept)
    assert client.get("/v2/me").status_code == 200


def test_an_error_is_in_the_log_again_after_a_while(capfd: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    log = Log("store", lambda: now[0])
    for now[0] in (0.0, 10.0, 3599.0, 3600.0):
        log("full")
        log("busy")
    assert capfd.readouterr().err.count("full") == 2


def test_a_proxys_new_user_is_told_where_the_store_has_no_room(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=128k") as disk:
        settings = Settings(
            auth="proxy", database=str(disk / "api.sqlite"), proxy_header="X-Remote-User", adds_unknown=True
        )
        client = TestClient(create_app(settings), base_url="http://localhost")
        fill(disk)
        assert client.get("/v2/me", headers={"X-Remote-User": "new.x"}).status_code == 503
