"""`headrace api start --auth pam`: real PAM, with users, passwords and a service `headrace` of the test's own.

They are files in a mount namespace (`machine`), and the instance there is root's and runs jobs as their users.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.process import pam_session
from headrace.service.users import pam
from machine import PATH, Instance, machine, missing
from waiting import PATIENCE, until

ALICE, BOB, CAROL, DAVE, ERIN = 61001, 61002, 61003, 61004, 61005
CONFIG = '[access]\nallow-guest-user = true\n[headrace.guests]\nsubmit = "as-user"\n'
SERVICE = "auth required pam_unix.so nodelay\naccount required pam_unix.so\n"

real = pytest.mark.skipif(bool(missing()), reason=missing() or "never")


def hashed(password: str) -> str:
    """A password as /etc/shadow has it."""
    program = 'print crypt($ARGV[0], "\\$6\\$ofthetest\\$")'
    return subprocess.run(["perl", "-e", program, password], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("program", "right"),
    [("exit 0", True), ("exit 3", False), ("exit 1", False), ("kill -9 $$", False), ("exec sleep 1000", False)],
)
def test_the_process_that_asks_has_the_last_word_and_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, right: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text(f"#!/bin/sh\ncat >{tmp_path}/told\n{program}\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    limit = 0.5 if "sleep" in program else PATIENCE
    assert asyncio.run(pam.Passwords().right("ann", "a password", limit)) is right
    told = capfd.readouterr().err
    if "sleep" in program:
        assert "PAM has not answered within 0.5 s" in told
    else:
        assert json.loads((tmp_path / "told").read_text()) == ["ann", "a password"]
        assert ("exited with status" in told) == (program in ("exit 1", "kill -9 $$"))


def test_without_the_service_or_the_extra_nobody_can_log_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pam_session, "FOLDERS", (str(tmp_path),))
    assert pam.missing() == f"PAM has no service 'headrace': make {tmp_path}/headrace (on Debian as {tmp_path}/other)"
    (tmp_path / "headrace").write_text(SERVICE)
    assert pam.missing() == ""
    monkeypatch.setitem(sys.modules, "pamela", None)
    assert pam.missing().startswith("PAM needs the extra pam ")


class World(Instance):
    """The instance with its service."""

    def serve(self) -> None:
        database = self.machine.folder / "private" / "users"
        database.parent.mkdir(mode=0o700)
        self.database = str(database)
        command = ["headrace", "api", "start", "--auth=pam", "--port=0", "--json", f"--database={database}"]
        self._errors = open(self.machine.folder / "private" / "errors", "w+")
        self._service = subprocess.Popen(
            self.machine.argv("env", f"PATH={PATH}", f"FLUX_URI={self.uri}", *command),
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        assert self._service.stdout is not None
        line = self._service.stdout.readline()
        assert line, (self.machine.folder / "private" / "errors").read_text()
        self.url = json.loads(line)["url"]

    def close(self) -> None:
        self._service.terminate()
        self._service.communicate(timeout=PATIENCE)
        self._errors.close()
        super().close()

    def ask(self, path: str, token: str = "", **form: str) -> tuple[int, Any]:
        """Status and answer of a request: a POST if there is a form."""
        data = urllib.parse.urlencode(form).encode() if form else None
        request = urllib.request.Request(self.url + path, data)
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as exc:
            return exc.code, json.loads(exc.read())

    def log_in(self, name: str, password: str) -> tuple[int, str]:
        status, answer = self.ask("/v1/login/access-token", username=name, password=password)
        return status, answer.get("access_token", "")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    shadow = Path("/etc/shadow").read_text() if os.getuid() == 0 else ""
    # The last field but one is the day of 1970 on which an account expires.
    shadow += f"alice:{hashed('right')}:19000:0:99999:7:::\nbob:{hashed('right')}:19000:0:99999:7::1:\n"
    shadow += "".join(f"{name}:{hashed('right')}:19000:0:99999:7:::\n" for name in ("carol", "dave", "erin"))
    files = {"/etc/shadow": shadow, "/etc/pam.d/headrace": SERVICE}
    with machine({"alice": ALICE, "bob": BOB, "carol": CAROL, "dave": DAVE}, files) as made:
        here = World(made, CONFIG)
        here.serve()
        yield here
        here.close()


@real
def test_a_user_of_the_machine_logs_in_and_has_the_own_userid(world: World) -> None:
    status, token = world.log_in("alice", "right")
    assert status == 200
    me = world.ask("/v2/me", token)[1]
    assert (me["name"], me["userid"], me["sees_all"]) == ("alice", ALICE, False)
    status, job = world.ask("/v1/jobs/submit", token, command="id -un", workdir="/tmp")
    assert status == 200, job
    assert (
        world.out("root", f"flux job attach {job['id']}; flux jobs -Aano '{{userid}}' {job['id']}") == f"alice\n{ALICE}"
    )
    status, job = world.ask("/v1/jobs/submit", token, command="pwd")
    assert (status, world.out("alice", f"flux job attach {job['id']}")) == (200, f"{world.machine.folder}/home/alice")
    # Her own commands are about the same jobs.
    assert world.out("alice", f"flux jobs -ano '{{id.dec}}' {job['id']}") == str(job["id"])


@real
@pytest.mark.parametrize("envars", [{}, {"PATH": "/tmp"}])
def test_no_program_of_a_user_is_started_beside_the_service(world: World, envars: dict[str, str]) -> None:
    token, made = world.log_in("alice", "right")[1], world.machine.folder / "made-by-the-tool"
    tool = world.machine.folder / "home" / "alice" / "snakemake"
    world.out("alice", f"printf '#!/bin/sh\\nid >{made}\\n' >{tool}; chmod 755 {tool}")
    status, answer = world.ask(
        "/v1/jobs/submit", token, command=str(tool), is_launcher="true", envars=json.dumps(envars), workdir="/tmp"
    )
    assert status == 400 and 'headrace.guests.submit is "as-user" here' in answer["Message"], answer
    assert not made.exists()


@real
def test_what_pam_refuses_is_a_failure_as_a_wrong_password_is(world: World) -> None:
    # An expired account with the right password, a user of none, and root, whom no form lets in.
    for name in ("bob", "nobody-there", "root"):
        assert world.log_in(name, "right")[0] in (400, 401), name
    codes = [world.log_in("carol", "wrong")[0] for _ in range(6)]
    assert set(codes[:5]) <= {400, 401} and codes[5] == 429
    assert world.log_in("carol", "right")[0] == 429
    assert world.log_in("alice", "right")[0] == 200


@real
def test_who_is_removed_from_the_store_stays_out(world: World) -> None:
    def users(*words: str) -> subprocess.CompletedProcess[str]:
        return world.machine.run("headrace", "api", "users", *words, env={"PATH": PATH})

    assert world.log_in("alice", "right")[0] == 200
    where = f"--database={world.database}"
    assert users("admin", "alice", where).returncode == 0
    assert world.ask("/v2/me", world.log_in("alice", "right")[1])[1]["sees_all"] is True
    assert users("remove", "alice", where).returncode == 0
    assert world.log_in("alice", "right")[0] in (400, 401)


@real
def test_nobodys_jobs_run_as_another_user_when_passwd_gives_userids_anew(world: World) -> None:
    def is_refused(name: str) -> bool:
        return world.log_in(name, "right")[0] == 403

    passwd = world.machine.folder / "file-0"
    before = passwd.read_text()
    token = world.log_in("dave", "right")[1]
    assert world.ask("/v2/me", token)[1]["userid"] == DAVE
    # `usermod -u` of dave, and `useradd` of erin, who gets his former userid. The same file is mounted there.
    moved = before.replace(f"dave:x:{DAVE}:{DAVE}", f"dave:x:{ERIN}:{ERIN}")
    passwd.write_text(f"{moved}erin:x:{DAVE}:{DAVE}::/tmp:/bin/bash\n")
    for name in ("dave", "erin"):
        # What passwd has answered before holds for some seconds.
        until(partial(is_refused, name))
    assert world.log_in("dave", "right")[0] == 403, "the right password counts as no failure"
    status, answer = world.ask("/v1/jobs/submit", token, command="id", workdir="/tmp")
    reason = f"the userid of 'dave' is {DAVE} in this service and {ERIN} in passwd: headrace api users renumber dave"
    assert status == 403 and reason in str(answer)
    where = f"--database={world.database}"
    checked = world.sh("root", f"headrace api doctor --auth pam {where}")
    assert checked.returncode == 1 and f"WRONG {reason}" in checked.stdout
    assert world.out("root", f"headrace api users renumber dave {where}") == f"dave has the userid {ERIN}"
    assert world.ask("/v2/me", token)[0] == 401
    for name, userid in (("dave", ERIN), ("erin", DAVE)):
        assert world.ask("/v2/me", world.log_in(name, "right")[1])[1]["userid"] == userid
    passwd.write_text(before)


@real
def test_doctor_says_whether_it_fits_together(world: World) -> None:
    checked = world.sh("root", f"headrace api doctor --auth pam --database={world.database}-none")
    assert checked.returncode == 0, checked
    assert [line for line in checked.stdout.splitlines() if "as-user" in line or "PAM" in line] == [
        'ok    headrace.guests.submit is "as-user": jobs run as their users, who must be in passwd',
        "ok    PAM has the service 'headrace'",
        "ok    you are root: PAM can check all passwords",
    ]
    assert f"ok    users of jobs can enter the run directory {world.run}" in checked.stdout.splitlines()
    world.run.chmod(0o700)
    try:
        closed = world.sh("root", f"headrace api doctor --auth pam --database={world.database}-none")
    finally:
        world.run.chmod(0o755)
    told = f"{world.run} has mode 0700, and must be passable for all, such as with 0711"
    assert f"WRONG users of jobs cannot enter the run directory {world.run}: {told}" in closed.stdout.splitlines()
    other = f"{world.database}-other"
    added = f"echo long enough | headrace api users add stranger.x --database={other}"
    checked = world.sh("root", f"{added}; headrace api doctor --auth users --database={other}")
    assert checked.returncode == 1
    assert "WRONG not in passwd, so their jobs are refused: stranger.x" in checked.stdout.splitlines()
