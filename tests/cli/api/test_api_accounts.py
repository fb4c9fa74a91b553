"""`headrace api users`, `tokens` and `doctor`, and a service with several users, as users start it."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from instance import start
from small_disk import fill, mounted

from headrace.cli.main import headrace
from headrace.service.store import database, tokens, users

Run = Callable[..., "tuple[int, str, str]"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`run(line, stdin)` is the status of a command, and what it prints."""

    monkeypatch.chdir(tmp_path)

    def once(line: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        status = headrace(line.split()[1:])
        return (status, *capfd.readouterr())

    return once


def test_users_are_added_listed_changed_and_removed(run: Run, tmp_path: Path) -> None:
    assert run("headrace api users add ann.x --database=users", "long enough\n") == (
        0,
        "ann.x has the userid 200000\n",
        "",
    )
    assert run("headrace api users add bob.x --admin --uid-range 250000-250009 --database=users", "long enough") == (
        *(0, "bob.x has the userid 250000\n", ""),
    )
    status, out, _ = run("headrace api users list --database=users")
    assert status == 0 and [line.split()[:3] for line in out.splitlines()] == [
        ["NAME", "USERID", "ROLE"],
        ["ann.x", "200000", "user"],
        ["bob.x", "250000", "admin"],
    ]
    assert [
        (one["name"], one["admin"]) for one in json.loads(run("headrace api users list --json --database=users")[1])
    ] == [
        ("ann.x", False),
        ("bob.x", True),
    ]
    assert (
        run("headrace api users admin ann.x --database=users")[0]
        == run("headrace api users admin bob.x --off --database=users")[0]
        == 0
    )
    store = database.open_file(str(tmp_path / "users"))
    assert [one.admin for one in users.everybody(store)] == [True, False]
    assert run("headrace api users password ann.x --database=users", "another one\n") == (0, "", "")
    assert users.verified(store, "ann.x", "another one")
    assert run("headrace api users renumber ann.x --database=users") == (0, "ann.x has the userid 200000\n", "")
    assert run("headrace api users remove ann.x --database=users") == (0, "", "") and [
        one.name for one in users.everybody(store)
    ] == ["bob.x"]


def test_a_short_password_is_taken_with_a_warning(run: Run) -> None:
    told = "headrace-api: a password of fewer than 8 characters is easy to guess\n"
    assert run("headrace api users add ann.x --database=users", "12345") == (0, "ann.x has the userid 200000\n", told)


def test_a_note_sends_nothing_to_the_terminal_of_who_lists_tokens(run: Run, tmp_path: Path) -> None:
    run("headrace api users add ann.x --database=users", "long enough")
    store = database.open_file(str(tmp_path / "users"))
    tokens.issue(store, users.one(store, "ann.x"), 60.0, "a\x1b[31m\nb \u202e\u00e9")
    lines = run("headrace api tokens list --database=users")[1].splitlines()
    assert len(lines) == 2 and lines[1].endswith("a\\x1b[31m\\nb \\u202e\u00e9")


def test_tokens_are_issued_listed_and_revoked(run: Run, tmp_path: Path) -> None:
    run("headrace api users add ann.x --database=users", "long enough")
    token = run("headrace api tokens issue ann.x --minutes 5 --note nightly --database=users")[1].strip()
    store = database.open_file(str(tmp_path / "users"))
    found = tokens.user_of(store, token)
    assert found is not None and found.name == "ann.x"
    (one,) = json.loads(run("headrace api tokens list --json --database=users")[1])
    assert (one["user"], one["note"], one["ends"] - one["issued"]) == ("ann.x", "nightly", 300.0)
    run("headrace api users add bob.x --database=users", "long enough")
    for line, count in (
        ("headrace api tokens list --database=users", 2),
        ("headrace api tokens list ann.x --database=users", 2),
        ("headrace api tokens list bob.x --database=users", 1),
    ):
        out = run(line)[1]
        assert len(out.splitlines()) == count and token not in out
    assert (
        run(f"headrace api tokens revoke {one['id']} --database=users") == (0, "", "")
        and tokens.user_of(store, token) is None
    )


NOBODY = "there is no user 'nosuch': headrace api users list --database users shows users"
NO_TOKEN = "there is no valid token with the id 'nosuch': headrace api tokens list --database users shows tokens"


@pytest.mark.parametrize(
    ("line", "stdin", "told"),
    [
        ("headrace api users add 1x --database=users", "long enough", "'1x' cannot be a name"),
        ("headrace api users add ann --database=users", "", "a password has 1 to 1024 characters, this one 0"),
        ("headrace api users password nosuch --database=users", "", NOBODY),
        ("headrace api users remove nosuch --database=users", "", NOBODY),
        ("headrace api users renumber nosuch --database=users", "", NOBODY),
        ("headrace api users admin nosuch --database=users", "", NOBODY),
        ("headrace api tokens issue nosuch --database=users", "", NOBODY),
        ("headrace api tokens list nosuch --database=users", "", NOBODY),
        ("headrace api tokens list nosuch --json --database=users", "", NOBODY),
        ("headrace api tokens revoke nosuch --database=users", "", NO_TOKEN),
    ],
)
def test_what_is_wrong_is_told_in_a_line(run: Run, line: str, stdin: str, told: str) -> None:
    status, out, err = run(line, stdin)
    assert (status, out) == (1, "") and err.startswith(f"headrace-api: {told}") and err.count("\n") == 1


WRONG = [
    "headrace api users --database=users",
    "headrace api users add x --uid-range 9-1 --database=users",
    "headrace api tokens issue x --minutes 0 --database=users",
    "headrace api tokens list x y --database=users",
]


@pytest.mark.parametrize("line", WRONG)
def test_wrong_arguments_of_accounts(run: Run, line: str) -> None:
    assert run(line)[0] == 2


def test_on_a_full_disk_a_command_says_so_in_a_line(run: Run, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=128k") as disk:
        line = f"headrace api users add NAME --database={disk}/users"
        assert run(line.replace("NAME", "ann.x"), "long enough")[0] == 0
        fill(disk)
        for asked in (line.replace("NAME", "bob.x"), f"headrace api tokens issue ann.x --database={disk}/users"):
            status, out, err = run(asked, "long enough")
            assert (status, out) == (1, "") and err.count("\n") == 1
            assert err.startswith(f"headrace-api: {disk}/users: the store of users cannot be used: ")
            assert "No space left on device" in err or "disk is full" in err


def test_a_store_that_was_lost_is_refused_until_it_is_begun_anew(run: Run, tmp_path: Path) -> None:
    assert run("headrace api users add ann.x --database=users", "long enough")[0] == 0
    (tmp_path / "users").unlink()
    for line in (
        "headrace api users list --database=users",
        "headrace api users add eve.x --database=users",
        "headrace api doctor --database=users",
    ):
        status, out, err = run(line, "long enough")
        assert status == 1 and f"{tmp_path}/users is not the store of users that was here before" in out + err
    assert run("headrace api users reset --database=users") == (0, "", "")
    assert run("headrace api users add ann.x --database=users", "long enough")[1] == "ann.x has the userid 200001\n"
    status, _, err = run("headrace api users reset --database=users")
    assert status == 1 and err == f"headrace-api: {tmp_path}/users has users: move it away first\n"


AS_OWNER = '[headrace.guests]\nsubmit = "as-owner"\n'
SERVE = """
echo long enough | headrace api users add ann.x
headrace api doctor
headrace api start --auth users --port 0 --json --audit=audit >ready 2>err & service=$!
until test -s ready; do kill -0 $service 2>/dev/null || { wait $service; echo $?; cat err; exit; }; sleep .05; done
url=$(jq -r .url ready); jq -c keys ready; cat err
password="password=long enough"
token=$(curl -s -d username=ann.x --data-urlencode "$password" $url/v1/login/access-token | jq -r .access_token)
id=$(curl -sH "Authorization: Bearer $token" -d command="id -u" $url/v1/jobs/submit | jq .id)
flux job wait-event $id clean >/dev/null; flux jobs -Aano "{userid} {status}"; flux job attach $id
wc -l <LINES; kill $service; wait $service; echo $?
"""


@pytest.mark.parametrize("named", [False, True])
def test_a_service_with_several_users_keeps_them_in_the_statedir(tmp_path: Path, named: bool) -> None:
    (tmp_path / "c.toml").write_text(AS_OWNER)
    state = tmp_path / "state"
    state.mkdir()
    script = SERVE.replace("LINES", "audit" if named else f"{state}/api-audit.jsonl")
    script = script if named else script.replace(" --audit=audit", "")
    done = start("-c", "c.toml", f"-Sstatedir={state}", "sh", "-c", script, cwd=str(tmp_path))
    lines = done.out.splitlines()
    assert lines[0] == "ann.x has the userid 200000"
    assert [line[:5] for line in lines[1:5]] == ["ok   "] * 4
    assert lines[5:] == [
        '["url"]',
        "headrace-api: jobs of all users run as you: users are not protected from each other's processes",
        *("200000 COMPLETED", str(Path("/proc/self").stat().st_uid), "4", "0"),
    ]
    assert (state / "api.sqlite").stat().st_mode & 0o777 == 0o600


def test_where_jobs_of_others_are_refused_it_does_not_start_and_says_why(tmp_path: Path) -> None:
    script = (
        "headrace api start --auth users --port 0 --database users; echo $?; headrace api start --auth users --port 0; "
        "echo $?; headrace api doctor --database nosuch; echo $?"
    )
    done = start("sh", "-c", script, cwd=str(tmp_path))
    assert 'this instance refuses their jobs (headrace.guests.submit is "refuse"): set submit = "as-owner"' in done.err
    assert "this instance has no statedir" in done.err and "give --database FILE" in done.err
    assert "Traceback" not in done.err
    lines = done.out.splitlines()
    assert lines[:2] == ["1", "1"] and [line[:5] for line in lines[2:]] == ["ok   ", "ok   ", "WRONG", "WRONG", "1"]


def test_the_extra_is_named_where_the_store_has_none(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "argon2", None)
    status, _, err = run("headrace api users list --database=users")
    assert status == 1 and "the store of users needs the extra api (argon2 is missing)" in err


def test_passwords_typed_at_a_terminal_must_agree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any) -> None:
    typed = iter(["long enough", "long enouhg"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda _prompt: next(typed))
    assert headrace(["api", "users", "add", "ann.x", "--database", str(tmp_path / "users")]) == 1
    assert "the passwords do not match" in capfd.readouterr().err


BEHIND_PROXY = """
echo long enough | headrace api users add boss.x --admin
headrace api start --auth proxy --socket ./api --proxy-header X-User --unknown-users=add --json >ready 2>err &
service=$!
until test -s ready; do kill -0 $service 2>/dev/null || { wait $service; echo $?; cat err; exit; }; sleep .05; done
jq -c keys ready; cat err
ask() { curl -s --unix-socket ./api "$@"; }
ask -H "X-User: boss.x" http://localhost/v2/me | jq -c '[.name, .sees_all, .auth]'
ask -H "X-User: new.x" http://localhost/v2/me | jq -c '[.name, .userid, .sees_all]'
ask http://localhost/v2/me | jq .status
ask -H "X-Remote-User: boss.x" http://localhost/v2/me | jq .status
id=$(ask -H "X-User: new.x" -d command=true http://localhost/v1/jobs/submit | jq .id)
flux job wait-event $id clean >/dev/null; flux jobs -Aano "{userid} {status}"
kill $service; wait $service; echo $?
"""


def test_a_proxy_at_a_socket_names_the_users(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(AS_OWNER)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = start(f"-Sstatedir={tmp_path}", "-cconfig.toml", "sh", "-c", BEHIND_PROXY, cwd=str(tmp_path), PATH=path)
    assert done.out.splitlines() == [
        "boss.x has the userid 200000",
        '["socket","url"]',
        "headrace-api: jobs of all users run as you: users are not protected from each other's processes",
        '["boss.x",true,"proxy"]',
        '["new.x",200001,false]',
        *("401", "401"),
        "200001 COMPLETED",
        "0",
    ]
    assert done.left == []
