"""Instances that a test takes apart: brokers of a `[bootstrap]` table, each a process that can be killed and started.

The lead's initial program waits for the test, which talks to the instance from outside, by commands and by a handle.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from instance import FLUX, clean_env, processes_with

from headrace.wire.client.handle import Handle
from waiting import PATIENCE


def until(done: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Wait until `done()` is true. Raises AssertionError that says what did not come."""
    limit = time.monotonic() + patience
    while not done():
        assert time.monotonic() < limit, f"not within {patience} s: {what}"
        time.sleep(0.02)


class Cluster:
    """Hosts `fake[0-N]` on this machine, one broker each. Make it with `cluster()`."""

    def __init__(self, folder: str, size: int, attrs: tuple[str, ...], **table: str) -> None:
        self.folder = folder
        self.size = size
        self.options = [f"-S{attr}" for attr in attrs]
        self.env = clean_env(TMPDIR=folder, HR_TEST=folder)
        self.brokers: dict[int, subprocess.Popen[str]] = {}
        self.uri = ""
        self._logs: dict[int, Path] = {}
        self.cert = os.path.join(folder, "curve.cert")
        subprocess.run([FLUX, "keygen", self.cert], check=True, env=self.env)
        where = f"ipc://{folder}/%h"
        fields = {"curve_cert": self.cert, "default_bind": where, "default_connect": where, **table}
        lines = ["[bootstrap]", *(f'{key} = "{value}"' for key, value in fields.items())]
        self.config = os.path.join(folder, "conf.toml")
        names = f"fake[0-{size - 1}]"
        lines.append(f'hosts = [{{host = "{names}"}}]')
        # Resources are configured, so that jobs run while some brokers are missing.
        lines += ["[resource]", "noverify = true", f'[[resource.config]]\nhosts = "{names}"\ncores = "0-1"', ""]
        Path(self.config).write_text("\n".join(lines))

    def broker(self, rank: int, *command: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """Start the broker of `rank`; its log goes to a file, of which `log(rank)` is the text."""
        argv = [*prefix, FLUX, "broker", "-c", self.config, *self.options, *command]
        self._logs[rank] = Path(self.folder) / f"log-{rank}"
        with open(self._logs[rank], "a") as log:
            process = subprocess.Popen(
                argv,
                env={**self.env, "FLUX_FAKE_HOSTNAME": f"fake{rank}"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if command else log,
                stderr=log,
                text=True,
            )
        self.brokers[rank] = process
        return process

    def lead(self, prefix: tuple[str, ...] = ()) -> None:
        """Start rank 0 and wait until it runs."""
        # One for each start: the program of a lead that was killed may still wait.
        self._until = Path(self.folder, f"until-{time.monotonic_ns()}")
        os.mkfifo(self._until)
        script = f"env; echo .; read -r _ <{self._until}"
        process = self.broker(0, "-Slog-stderr-level=6", "sh", "-c", script, prefix=prefix)
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        inside = {}
        for line in lines:
            if line == ".\n":
                break
            name, sep, value = line.rstrip("\n").partition("=")
            if sep and re.fullmatch(r"\w+", name):
                inside[name] = value
        assert "FLUX_URI" in inside, self.log(0)
        self.uri = inside["FLUX_URI"]

    def log(self, rank: int) -> str:
        """What the brokers of `rank` have written to stderr."""
        return self._logs[rank].read_text()

    def handle(self) -> Handle:
        """A connection to the lead."""
        return Handle(self.uri)

    def flux(self, *args: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        """A command in the instance."""
        env = {**self.env, "FLUX_URI": self.uri}
        return subprocess.run(
            [FLUX, *args],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def attach(self, job: str) -> subprocess.Popen[str]:
        """`flux job attach` in the background."""
        env = {**self.env, "FLUX_URI": self.uri}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [FLUX, "job", "attach", job], env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )

    def pid(self, rank: int) -> int:
        """The process of the broker of `rank` that is alive now."""
        return self.brokers[rank].pid

    def health(self) -> tuple[str, dict[int, str]]:
        """The lead's subtree status, and its children's by rank."""
        with self.handle() as handle:
            body = handle.rpc("overlay.health").get(PATIENCE)
        return body["status"], {child["rank"]: child["status"] for child in body["children"]}

    def up(self) -> set[int]:
        """Ranks that the scheduler may use."""
        listed = self.flux("resource", "list", "-s", "free,allocated", "-no", "{ranks}").stdout
        return ids(listed)

    def down(self) -> set[int]:
        """Ranks that are down."""
        return ids(self.flux("resource", "list", "-s", "down", "-no", "{ranks}").stdout)

    def release(self) -> None:
        """Let the initial program end."""
        self._until.write_text("\n")

    def finish(self) -> dict[int, int]:
        """Let the initial program end; the exit codes of all brokers that still ran."""
        running = {rank: process for rank, process in self.brokers.items() if process.poll() is None}
        if 0 in running:
            self.release()
        return {rank: process.wait(PATIENCE) for rank, process in running.items()}

    def until_nothing_is_left(self) -> None:
        """Wait until nothing outlives the brokers. Raises AssertionError that names what does."""
        try:
            until(lambda: not self.left(), "nothing is left")
        except AssertionError:
            left = self.left()
            assert left == [], left

    def left(self) -> list[str]:
        """Processes and run directories that outlived the brokers."""
        return processes_with(f"HR_TEST={self.folder}") + [str(path) for path in Path(self.folder).glob("flux-*")]


def ids(text: str) -> set[int]:
    """Ranks of idsets, one a line."""
    found: set[int] = set()
    for part in text.replace("\n", ",").strip(",").split(","):
        if part.strip():
            first, _, last = part.strip().partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return found


@contextlib.contextmanager
def cluster(size: int, *attrs: str, **table: str) -> Iterator[Cluster]:
    """A folder and configuration for `size` brokers that are not started yet; at the end all are killed."""
    folder = tempfile.mkdtemp(prefix="hr-", dir="/tmp")
    made = Cluster(folder, size, attrs, **table)
    try:
        yield made
    finally:
        for process in made.brokers.values():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
        for line in processes_with(f"HR_TEST={folder}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line.split()[0]), signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
