from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from headrace.api import audit
from headrace.api.identity.credential import user
from headrace.api.settings import SettingsError


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
    with pytest.raises(OSError, match="pipe"):
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
