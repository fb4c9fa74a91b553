from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from small_disk import fill, mounted
from tests.service.conftest import TestClient, forms_token

from headrace.service import audit
from headrace.service.app import create_app
from headrace.service.settings import Settings, SettingsError
from headrace.service.users.access import TooManyFailures
from headrace.service.users.credential import user


def write(path: Path, count: int, note: str = "") -> list[dict[str, Any]]:
    lines = [{"time": float(number), "userid": number % 3, "note": note} for number in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lines[::-1]


def pages(path: Path, count: int, userid: int | None = None) -> list[dict[str, Any]]:
    found, end = audit.read(str(path), count, None, userid)
    while end:
        part = audit.read(str(path), count, end, userid)
        assert part.end < end
        found += part.lines
        end = part.end
    return found


@pytest.mark.parametrize("count", [1, 7, 1000])
def test_lines_come_newest_first_page_by_page(tmp_path: Path, count: int) -> None:
    lines = write(tmp_path / "a", 100)
    assert pages(tmp_path / "a", count) == lines
    assert pages(tmp_path / "a", count, userid=2) == [line for line in lines if line["userid"] == 2]
    assert audit.read(str(tmp_path / "a"), count).lines == lines[:count]


def test_a_file_larger_than_what_is_read_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_PIECE", 300)
    lines = write(tmp_path / "a", 200, "x" * 50)
    assert pages(tmp_path / "a", 9) == lines
    # No more than so much is gone through for one request, though there are older lines.
    monkeypatch.setattr(audit, "_MOST_READ", 1000)
    part = audit.read(str(tmp_path / "a"), 1000)
    assert 0 < len(part.lines) < 200 and part.end and pages(tmp_path / "a", 1000) == lines


def test_what_is_no_line_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"userid": 1}\n{"us\n7\n{"userid": 2}\n{"user')
    assert audit.read(str(tmp_path / "a"), 9).lines == [{"userid": 2}, {"userid": 1}]
    (tmp_path / "b").write_text("")
    assert audit.read(str(tmp_path / "b"), 9) == ([], 0)


def asked(path: Path, method: str, status: int, **state: Any) -> list[dict[str, Any]]:
    """The lines of an audit after one request that is answered so."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["state"].update(state)
        await send({"type": "http.response.start", "status": status, "headers": []})

    async def send(message: Any) -> None:
        pass

    scope = {"type": "http", "method": method, "path": "/x", "query_string": b"token=secret", "client": ("10.0.0.1", 9)}
    asyncio.run(audit.Audit(app, str(path))(scope, None, send))  # type: ignore[arg-type]
    return audit.read(str(path), 100).lines


def test_changes_and_refusals_have_a_line_and_what_was_only_read_has_none(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert asked(path, "GET", 200) == []
    (line,) = asked(path, "POST", 201, identity=user("ann", 7), job=5)
    assert line.pop("time") > 0
    assert line == {
        **{"user": "ann", "userid": 7, "address": "10.0.0.1", "method": "POST", "path": "/x", "status": 201},
        "job": 5,
    }
    assert asked(path, "GET", 403)[0]["user"] is None
    assert asked(path, "POST", 401, login="who")[0]["user"] == "who"
    assert "secret" not in path.read_text() and path.stat().st_mode & 0o077 == 0


def test_a_change_that_failed_within_has_a_line(tmp_path: Path) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError

    scope = {"type": "http", "method": "POST", "path": "/x", "client": None}
    with pytest.raises(RuntimeError):
        asyncio.run(audit.Audit(app, str(tmp_path / "a"))(scope, None, None))  # type: ignore[arg-type]
    (line,) = audit.read(str(tmp_path / "a"), 9).lines
    assert (line["status"], line["address"]) == (500, "unix")


def test_its_file_is_its_owners_alone(tmp_path: Path) -> None:
    path, link, pipe = tmp_path / "a", tmp_path / "link", tmp_path / "pipe"
    before = os.umask(0)
    try:
        os.close(audit.open_file(str(path)))
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    os.close(audit.open_file(str(path)))
    for mode in (0o666, 0o644, 0o640, 0o620, 0o602):
        path.chmod(mode)
        with pytest.raises(SettingsError, match=rf"others have rights.*mode {mode:o}.*chmod 600 {path}"):
            audit.open_file(str(path))
    path.chmod(0o600)
    link.symlink_to(path)
    with pytest.raises(SettingsError, match="link is a symbolic link: name the file"):
        audit.open_file(str(link))
    link.unlink()
    link.symlink_to(tmp_path / "absent")
    with pytest.raises(SettingsError, match="link is a symbolic link: name the file"):
        audit.open_file(str(link))
    assert not (tmp_path / "absent").exists()
    os.mkfifo(pipe, 0o600)
    with pytest.raises(SettingsError, match="pipe: the audit must be a regular file"):
        audit.open_file(str(pipe))
    with pytest.raises(SettingsError, match="must be a regular file"):
        audit.open_file("/dev/null")


def test_its_file_is_not_another_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.close(audit.open_file(str(tmp_path / "a")))
    monkeypatch.setattr(audit.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(SettingsError, match=f"must be a file of yours, not of user {os.getuid()}"):
        audit.open_file(str(tmp_path / "a"))


def test_a_line_is_short_whatever_was_tried_and_one_of_before_that_is_not_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert asked(path, "POST", 401, login="v" * 1_000_000)[0]["user"] == "v" * 200
    assert path.stat().st_size < 1000
    long = json.dumps({"user": "w" * 2 * audit._PIECE})
    path.write_text('{"userid": 1}\n' + f"{long}\n" * 3 + '{"userid": 2}\n')
    assert audit.read(str(path), 9).lines == [{"userid": 2}, {"userid": 1}]
    assert pages(path, 1) == [{"userid": 2}, {"userid": 1}]


def test_refusals_without_end_have_few_lines_and_changes_all(tmp_path: Path) -> None:
    path, now = tmp_path / "a", [1000.0]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["state"].update(scope["of"])
        await send({"type": "http.response.start", "status": scope["status"], "headers": []})

    async def send(message: Any) -> None:
        pass

    kept = audit.Audit(app, str(path), lambda: now[0])

    def ask(count: int, status: int, address: str = "10.0.0.1", **of: Any) -> int:
        scope = {"type": "http", "method": "POST", "path": "/x", "client": (address, 9), "status": status, "of": of}
        before = len(audit.read(str(path), 10_000).lines)
        for _ in range(count):
            asyncio.run(kept({**scope}, None, send))  # type: ignore[arg-type]
        return len(audit.read(str(path), 10_000).lines) - before

    assert ask(100, 429) == 60
    assert [line.get("silent_until") for line in audit.read(str(path), 2).lines] == [1060.0, None]
    assert ask(100, 201, identity=user("ann", 7)) == 100 and ask(3, 403, identity=user("ann", 7)) == 3
    assert sum(ask(2, 401, f"10.0.1.{number}") for number in range(250)) == 300 - 60
    assert ask(1100, 404, identity=user("ann", 7)) == 997
    now[0] += 60.0
    assert ask(100, 429) == 60
    # The clock of the machine was set back.
    now[0] -= 1000.0
    assert ask(1, 429) == 1


class Changes:
    """An application whose changes have a first line, behind its audit; `made` are those that happened."""

    def __init__(self, path: Path) -> None:
        self.made = 0
        self.path = path
        self.audit = audit.Audit(self._app, str(path))  # type: ignore[arg-type]

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        scope["state"]["identity"] = user("ann", 7)
        await scope["state"]["begin_change"]()
        self.made += 1
        self.lines_before = self.path.read_text()
        await send({"type": "http.response.start", "status": scope["answer"], "headers": []})

    def make(self, answer: int = 201) -> None:
        async def send(message: Any) -> None:
            pass

        scope = {"type": "http", "method": "POST", "path": "/x", "client": None, "answer": answer}
        asyncio.run(self.audit(scope, None, send))  # type: ignore[arg-type]


def test_the_first_line_of_a_change_is_there_before_it_happens_and_one_is_read(tmp_path: Path) -> None:
    changes = Changes(tmp_path / "a")
    changes.make()
    first, second = map(json.loads, changes.path.read_text().splitlines())
    assert json.loads(changes.lines_before) == first and first["status"] is None and first["user"] == "ann"
    assert (second["status"], second["request"]) == (201, first["request"])
    changes.make()
    lines = pages(changes.path, 1)
    assert [line["status"] for line in lines] == [201, 201] and "request" not in lines[0]
    # The service was killed before it answered.
    changes.path.write_text("".join(changes.path.read_text().splitlines(keepends=True)[:3]))
    assert [line["status"] for line in pages(changes.path, 1)] == [None, 201]


def test_a_user_who_is_refused_without_end_waits_so_that_first_lines_have_a_bound(tmp_path: Path) -> None:
    changes = Changes(tmp_path / "a")
    with pytest.raises(TooManyFailures):
        for _ in range(1001):
            changes.make(404)
    assert changes.made == 1000


def test_on_a_full_disk_no_change_happens_and_no_line_is_lost(tmp_path: Path, capfd: Any) -> None:
    """The room ends at any byte of the first or of the second line of a change."""
    with mounted(tmp_path / "disk", "size=128k") as disk:
        for taken in range(0, 400, 37):
            changes = Changes(disk / f"a{taken}")
            changes.path.write_text(" " * taken + "\n")
            filler = fill(disk)
            with pytest.raises(audit.NotAudited, match="cannot be written: No space left on device"):
                for _ in range(100):
                    changes.make()
            made = changes.made
            for _ in range(3):
                with pytest.raises(audit.NotAudited):
                    changes.make()
            assert changes.made == made > 0
            assert capfd.readouterr().err.count("changes are refused until it can be") == 1
            filler.unlink()
            changes.make()
            lines = audit.read(str(changes.path), 1000).lines
            assert [line["status"] for line in lines if line["status"] != 500] == [201] * (made + 1)
            os.truncate(changes.path, 0)


def test_a_line_that_was_torn_has_a_newline_after_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text('{"userid": 1}\n{"us')
    path.chmod(0o600)
    changes = Changes(path)
    assert path.read_text() == '{"userid": 1}\n{"us\n'
    # Another service that writes to the file has torn one meanwhile.
    path.write_text(path.read_text() + '{"x')
    changes.make()
    assert [line.get("status") for line in audit.read(str(path), 9).lines] == [201, None]


def test_a_change_that_cannot_be_audited_is_refused_by_all_interfaces(tmp_path: Path, instance: Any) -> None:
    with mounted(tmp_path / "disk", "size=64k") as disk:
        settings = Settings(uri=instance.uri, auth="none", audit=str(disk / "audit"))
        client = TestClient(create_app(settings), follow_redirects=False, base_url="http://localhost")
        filler = fill(disk)
        submission: dict[str, Any] = {"json": {"command": ["true"]}, "headers": {"Idempotency-Key": "one"}}
        while (answer := client.post("/v2/jobs", json={"command": "true"})).status_code == 201:
            pass
        before = instance.flux("jobs", "-aA", "-c0", "-no", "{id}")
        for _ in range(2):
            answer = client.post("/v2/jobs", **submission)
            assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
            assert "No space left on device" in answer.json()["detail"] and str(disk) not in answer.text
        answer = client.post("/v1/jobs/submit", params={"command": "true"})
        assert answer.status_code == 503 and "audit" in answer.json()["Message"]
        form = {"csrf": forms_token(client, "/submit"), "kind": "command", "command": "true"}
        assert client.post("/submit", data=form).status_code == 503
        assert client.get("/v2/jobs").status_code == 200
        assert instance.flux("jobs", "-aA", "-c0", "-no", "{id}") == before
        filler.unlink()
        assert len({client.post("/v2/jobs", **submission).json()["id"] for _ in range(2)}) == 1
        ids = [line["job"] for line in client.get("/v2/audit").json()["audit"] if line["status"] == 201]
        assert len(ids) == len(before.splitlines()) + 2 and ids[0] == ids[1]
