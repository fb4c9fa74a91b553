"""This machine with users of the test's own, in a mount namespace: its passwd, group, PAM services and keys are files
of the test there, and the machine itself is not touched. Only root can make one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from waiting import PATIENCE

BIN = sysconfig.get_path("scripts")
PATH = f"{BIN}:/usr/bin:/bin"
# A file that each instance here is started with, as a descriptor without close-on-exec.
INHERITED = "/dev/zero"
REPOSITORY = str(Path(__file__).parents[1])


def missing() -> str:
    """Why there can be no such machine here, "" if there can be one."""
    if os.getuid() != 0:
        return "needs root, for processes of other users"
    tools = [tool for tool in ("unshare", "nsenter", "setpriv") if shutil.which(tool) is None]
    if tools or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        return f"needs unshare, nsenter, setpriv (util-linux), and mount namespaces: {', '.join(tools)}"
    return ""


class Machine:
    """`users`: names and user ids; each has a group of the same number, a home, and the group `crew`."""

    CREW = 61900

    def __init__(
        self, folder: str, users: Mapping[str, int], files: Mapping[str, str], folders: Sequence[str] = ()
    ) -> None:
        self.folder = Path(folder)
        self.users = users
        passwd, group = Path("/etc/passwd").read_text(), Path("/etc/group").read_text()
        for name, uid in users.items():
            home = self.folder / "home" / name
            home.mkdir(parents=True, mode=0o755)
            home.chmod(0o700)
            os.chown(home, uid, uid)
            passwd += f"{name}:x:{uid}:{uid}::{home}:/bin/bash\n"
            group += f"{name}:x:{uid}:\n"
        group += f"crew:x:{self.CREW}:{','.join(users)}\n"
        lines = []
        for index, (path, text) in enumerate({"/etc/passwd": passwd, "/etc/group": group, **files}.items()):
            ours = self.folder / f"file-{index}"
            ours.write_text(text)
            ours.chmod(0o600 if path == "/etc/shadow" else 0o644)
            lines.append(_bound(ours, path))
        lines += [_empty(path) for path in folders]
        lines += [_opened(closed, inner, self.folder) for closed, inner in _closed_folders()]
        script = "\n".join(["set -e", *lines, "echo ready", "read -r _"])
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n", "the mount namespace cannot be made"

    def close(self) -> None:
        assert self._holder.stdin is not None
        self._holder.stdin.close()
        self._holder.wait(PATIENCE)

    def argv(self, *command: str, user: str = "root") -> list[str]:
        """The command line that runs `command` there as `user`, who has just logged in."""
        entered = ["nsenter", "-t", str(self._holder.pid), "-m", "--wd=/"]
        if user == "root":
            return [*entered, *command]
        uid = str(self.users[user])
        home = str(self.folder / "home" / user)
        own = [f"HOME={home}", f"USER={user}", f"LOGNAME={user}", f"PATH={PATH}", f"PWD={home}"]
        become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--init-groups", "env", "-i", "-C", home, *own]
        return [*entered, *become, *command]

    def run(
        self, *command: str, user: str = "root", env: Mapping[str, str] | None = None, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there as `user`; a user other than root has `env` and what a login gives."""
        given = [f"{name}={value}" for name, value in (env or {}).items()]
        return subprocess.run(
            self.argv("env", *given, *command, user=user),
            input=text,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )


class Instance:
    """An instance of root in a machine, whose users can reach its socket."""

    def __init__(self, made: Machine, config: str, size: int = 1, *options: str) -> None:
        self.machine = made
        self.config = made.folder / "conf.toml"
        self.config.write_text(config)
        self.run = made.folder / "run"
        self.run.mkdir()
        self.run.chmod(0o755)
        start = ["flux", "start", f"-s{size}", f"-Srundir={self.run}", "-c", str(self.config), *options]
        with open(INHERITED, "rb") as inherited:
            self._lead = subprocess.Popen(
                made.argv("env", f"PATH={PATH}", *start, "sh", "-c", "echo $FLUX_URI; read -r _"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                pass_fds=[inherited.fileno()],
            )
        assert self._lead.stdout is not None
        self.uri = self._lead.stdout.readline().strip()
        assert self.uri

    def close(self) -> None:
        self._lead.communicate("\n", timeout=PATIENCE)
        assert self._lead.returncode == 0

    def sh(self, user: str, script: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A shell script of a user who has logged in, with the instance's address."""
        return self.machine.run("sh", "-c", script, user=user, env={"FLUX_URI": self.uri, "PATH": PATH, **env})

    def out(self, user: str, script: str) -> str:
        """What a script prints that has no errors."""
        done = self.sh(user, script)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def _bound(ours: Path, path: str) -> str:
    """Shell text that puts a file over `path`, which may not exist."""
    folder = os.path.dirname(path)
    if os.path.exists(path):
        return f"mount --bind {ours} {path}"
    # A folder cannot be made larger without a change of the machine: a copy of it is put over it.
    copy = f"{ours}.folder"
    return (
        f"mkdir -p {copy} && cp -a {folder}/. {copy}/ && cp {ours} {copy}/{os.path.basename(path)} && "
        f"mount --bind {copy} {folder}"
    )


def _empty(path: str) -> str:
    """Shell text that has an empty folder of root at `path`, in the place of all that is beside it."""
    return f"mount -t tmpfs -o mode=755 none {os.path.dirname(path)} && mkdir -p {path}"


def _closed_folders() -> Iterator[tuple[str, str]]:
    """The folders in the way to this Python and to Headrace that other users may not enter, each with the folder in it
    that is in the way, too."""
    seen = set()
    for path in (os.path.realpath(sys.executable), f"{BIN}/flux", f"{REPOSITORY}/src"):
        parts = Path(path).parts
        for depth in range(2, len(parts)):
            folder = os.path.join(*parts[:depth])
            if folder not in seen and not os.stat(folder).st_mode & 0o001:
                yield folder, os.path.join(*parts[: depth + 1])
            seen.add(folder)


def _opened(closed: str, inner: str, folder: Path) -> str:
    """Shell text that replaces a folder by an open one that has nothing in it but `inner`."""
    kept = folder / f"kept{closed.replace('/', '-')}"
    return (
        f"mkdir -p {kept} && mount --bind {inner} {kept} && mount -t tmpfs -o mode=755 none {closed} && "
        f"mkdir -p {inner} && mount --bind {kept} {inner}"
    )


@contextlib.contextmanager
def machine(
    users: Mapping[str, int], files: Mapping[str, str] | None = None, folders: Sequence[str] = ()
) -> Iterator[Machine]:
    """A machine with `users`, with `files` by path, and with empty `folders`."""
    folder = tempfile.mkdtemp(prefix="hr-", dir="/tmp")
    os.chmod(folder, 0o755)
    try:
        made = Machine(folder, users, files or {}, folders)
        try:
            yield made
        finally:
            made.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
