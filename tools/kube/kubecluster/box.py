"""The namespaces of a cluster as seen from the machine: made, entered, asked for processes, taken away."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import KubeError

_PATIENCE = 120.0


def wait_for(met: Callable[[], object], what: str, seconds: float, pause: float = 0.02) -> None:
    """Look until something holds. Raises KubeError naming it after so many seconds."""
    deadline = time.monotonic() + seconds
    while not met():
        if time.monotonic() > deadline:
            raise KubeError(f"{what}: not within {seconds:.0f} s")
        time.sleep(pause)


def _birth(pid: int) -> str:
    """The start time of a process in ticks, which tells it from a later one with the same id; "" if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def is_alive(pid: int, birth: str) -> bool:
    """Whether the process with this id and start time is there."""
    return birth != "" and _birth(pid) == birth


def this_process() -> dict[str, object]:
    """This process's id and start time, for a record that outlives it."""
    return {"pid": os.getpid(), "birth": _birth(os.getpid())}


class Box:
    """The namespaces whose first process is `pid`; `state` is the cluster's folder."""

    def __init__(self, state: Path, pid: int, birth: str) -> None:
        self.state, self.pid, self._birth = state, pid, birth

    @classmethod
    def make(cls, state: Path, lifeline: int | None = None) -> Box:
        """Make them. With the reading end of a pipe as lifeline they go when its writing ends are closed."""
        (state / "logs").mkdir()
        more = () if lifeline is None else ("--lifeline", str(lifeline))
        maker = subprocess.run(
            [sys.executable, "-m", f"{__package__}.init", str(state), *more],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=() if lifeline is None else (lifeline,),
            check=False,
            text=True,
        )
        if maker.returncode:
            raise KubeError(maker.stderr.strip().rpartition("\n")[2] or f"init ended with {maker.returncode}")
        pid = int(maker.stdout)
        box = cls(state, pid, _birth(pid))
        (state / "init.json").write_text(json.dumps({"pid": pid, "birth": box._birth}))
        wait_for(lambda: (state / "control").exists() or not box.alive, "the namespaces' first process", _PATIENCE)
        if not box.alive:
            raise KubeError(f"the namespaces' first process ended: {(state / 'logs/init.log').read_text()[-1000:]}")
        return box

    @classmethod
    def of(cls, state: Path) -> Box | None:
        """Those of a state folder, or None where none were made."""
        try:
            recorded = json.loads((state / "init.json").read_text())
        except (OSError, ValueError):
            return None
        return cls(state, recorded["pid"], recorded["birth"])

    @property
    def alive(self) -> bool:
        return is_alive(self.pid, self._birth)

    def entering(self, *namespaces: str) -> list[str]:
        """The words before a command that runs it within: all namespaces, or those named ("net", "mount", "pid")."""
        if not namespaces:
            namespaces = ("mount", "net", "pid", "ipc", "uts")
        return ["nsenter", "-t", str(self.pid), *(f"--{name}" for name in namespaces), "--"]

    def run(self, argv: Sequence[str], namespaces: Sequence[str] = (), **options: Any) -> str:
        """Run a command within to its end; its output. Raises KubeError with its last words if it fails."""
        done = subprocess.run(
            [*self.entering(*namespaces), *argv],
            capture_output=True,
            text=not isinstance(options.get("input"), bytes),
            check=False,
            **options,
        )
        if done.returncode:
            words = done.stderr if isinstance(done.stderr, str) else done.stderr.decode(errors="replace")
            raise KubeError(f"{argv[0]} ended with {done.returncode}: {words.strip()[-2000:]}")
        return done.stdout if isinstance(done.stdout, str) else done.stdout.decode(errors="replace")

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            try:
                connection.connect(str(self.state / "control"))
                connection.sendall(json.dumps(request).encode() + b"\n")
                answer: dict[str, Any] = json.loads(connection.makefile("r").readline() or "{}")
            except (OSError, ValueError) as exc:
                raise KubeError(f"cluster {self.state.name} does not answer: {exc}") from exc
        if "error" in answer:
            raise KubeError(f"{request.get('name', request['op'])}: {answer['error']}")
        return answer

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Start a process that the first process keeps under this name; its output goes to `logs/NAME.log`."""
        record = {"argv": list(argv), "env": dict(env or {})}
        self._ask({"op": "start", "name": name, **record})
        recorded = self._recorded()
        recorded[name] = record
        (self.state / "processes.json").write_text(json.dumps(recorded))

    def _recorded(self) -> dict[str, Any]:
        try:
            recorded: dict[str, Any] = json.loads((self.state / "processes.json").read_text())
        except OSError:
            return {}
        return recorded

    def restart(self, name: str) -> None:
        """Start a process that was stopped, as it was started first."""
        recorded = self._recorded()
        if name not in recorded:
            raise KubeError(f"{name}: no such process; there are {', '.join(sorted(recorded))}")
        self._ask({"op": "start", "name": name, **recorded[name]})

    def stop(self, name: str, with_signal: int = signal.SIGTERM) -> None:
        """Send a signal to a process and wait until it has ended."""
        self._ask({"op": "signal", "name": name, "signal": int(with_signal), "wait": True})

    def signal(self, name: str, which: int) -> None:
        """Send a signal to a process and its group (SIGSTOP and SIGCONT: it hangs, and goes on)."""
        self._ask({"op": "signal", "name": name, "signal": int(which)})

    def processes(self) -> tuple[dict[str, int], dict[str, int]]:
        """The running ones with their ids (within), and the ended ones with their exit codes."""
        answer = self._ask({"op": "list"})
        return answer["running"], answer["ended"]

    def log(self, name: str, size: int = 2000) -> str:
        """The end of a process's log."""
        try:
            return (self.state / "logs" / f"{name}.log").read_bytes()[-size:].decode(errors="replace")
        except OSError:
            return ""

    def remove(self) -> None:
        """Kill all that runs within and wait until it is gone. The kernel takes mounts and interfaces along."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            wait_for(lambda: not self.alive, f"the end of process {self.pid}", 60)


def forget(state: Path, cgroup: str) -> None:
    """Remove what the kernel does not: empty cgroups below `cgroup` of each hierarchy, and the state folder."""
    for top in {*Path("/sys/fs/cgroup").glob(f"*/{cgroup}"), Path("/sys/fs/cgroup") / cgroup}:
        if top.is_dir():
            for folder, _, _ in os.walk(top, topdown=False):
                _remove_cgroup(folder)
    shutil.rmtree(state, ignore_errors=True)
    if state.exists():
        shutil.rmtree(state)


def _remove_cgroup(folder: str) -> None:
    """A cgroup whose last process was just killed stays busy for moments."""
    deadline = time.monotonic() + 5
    while True:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return
        except OSError as exc:
            if time.monotonic() > deadline:
                raise KubeError(f"cgroup {folder} cannot be removed: {exc}") from exc
            time.sleep(0.02)
        else:
            return
