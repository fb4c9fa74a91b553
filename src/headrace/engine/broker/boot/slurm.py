"""Boot from SLURM_* variables alone: `srun flux start` if srun offers no PMI that we support.

Tasks of a step exchange files in a folder of the user's home, which the nodes of a cluster share. Each task writes a
file of mode 0600 with its host, endpoint and public key, and reads the files of its parent and children. Keys are
random, as everywhere.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping

from headrace.engine.broker.boot.pmi_clients import PmiError
from headrace.formats.spec.hostlist import Hostlist, HostlistError

_EXCHANGE_TIMEOUT = 60.0
_POLL = 0.02


class SlurmMeeting:
    """The exchange of one Slurm step, with the methods of a PMI client. Raises PmiError."""

    def __init__(self, env: Mapping[str, str]) -> None:
        try:
            self.rank = _number(env, "SLURM_PROCID")
            counted = "SLURM_STEP_NUM_TASKS" if env.get("SLURM_STEP_NUM_TASKS") else "SLURM_NTASKS"
            self.size = _number(env, counted)
            self.kvsname = f"{_number(env, 'SLURM_JOB_ID')}.{_number(env, 'SLURM_STEP_ID')}"
            home = env.get("HEADRACE_SLURM_DIR") or os.path.join(env["HOME"], ".cache", "headrace")
        except KeyError as exc:
            raise PmiError(f"Slurm's variables are not complete: {exc}") from None
        if self.size < 1:
            raise PmiError(f"{counted}={self.size}: a step has at least one task")
        if self.rank >= self.size:
            raise PmiError(
                f"SLURM_PROCID={self.rank}: must be less than {counted}, which is {self.size}; to start a program by "
                f"hand in a step's environment, unset SLURM_STEP_ID"
            )
        # Components of a heterogeneous step have their own lists, but their tasks are counted together.
        if "SLURM_HET_SIZE" not in env:
            _check_nodes(env, counted, self.size)
        self._single = env.get("SLURM_STEP_NUM_NODES", env.get("SLURM_NNODES", "")) == "1"
        self.folder = os.path.join(home, f"slurm-{self.kvsname}")
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
        except OSError as exc:
            raise PmiError(f"{self.folder}: {exc.strerror}") from None

    def put(self, key: str, value: str) -> None:
        path = os.path.join(self.folder, key)
        try:
            fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(fd, "w", encoding="utf-8") as file:
                file.write(value)
            os.rename(path + ".new", path)
        except OSError as exc:
            raise PmiError(f"{path}: {exc.strerror}") from None

    def get(self, key: str) -> str:
        deadline = time.monotonic() + _EXCHANGE_TIMEOUT
        while True:
            try:
                with open(os.path.join(self.folder, key), encoding="utf-8") as file:
                    return file.read()
            except FileNotFoundError:
                if time.monotonic() > deadline:
                    raise PmiError(
                        f"{self.folder}/{key}: not written by its task in {_EXCHANGE_TIMEOUT:.0f} s"
                    ) from None
                time.sleep(_POLL)
            except OSError as exc:
                raise PmiError(f"{self.folder}/{key}: {exc.strerror}") from None

    def lookup(self, key: str) -> str:
        if key == "PMI_process_mapping" and self._single:
            return f"(vector,(0,1,{self.size}))"
        return ""

    def barrier(self) -> None:
        """Do nothing, since `get` waits for its data."""

    def finalize(self) -> None:
        """Record that this task has read its data. The last task removes the folder."""
        self.put(f"done.{self.rank}", "")
        try:
            done = sum(name.startswith("done.") and not name.endswith(".new") for name in os.listdir(self.folder))
        except OSError:
            return
        if done == self.size:
            shutil.rmtree(self.folder, ignore_errors=True)


def _number(env: Mapping[str, str], name: str) -> int:
    """Parse a number in a variable. Raises KeyError, PmiError."""
    text = env[name]
    if not (text.isascii() and text.isdigit()):
        raise PmiError(f"{name}={text}: must be a number, 0 or more, as srun sets it")
    return int(text)


def _check_nodes(env: Mapping[str, str], counted: str, size: int) -> None:
    """Raise PmiError if srun's variables about nodes contradict `size`.

    Otherwise, a task could wait in vain for tasks that do not exist.
    """
    nodes = {}
    text = env.get("SLURM_STEP_NODELIST", "")
    # Slurm allows two bracketed ranges in a name, which RFC 29 does not.
    if text and not re.search(r"\][^,[]*\[[^]]*\]", text):
        try:
            nodes["SLURM_STEP_NODELIST"] = len(Hostlist.parse(text))
        except HostlistError as exc:
            raise PmiError(f"SLURM_STEP_NODELIST: {exc}") from None
    if env.get("SLURM_STEP_NUM_NODES"):
        nodes["SLURM_STEP_NUM_NODES"] = _number(env, "SLURM_STEP_NUM_NODES")
    text = env.get("SLURM_STEP_TASKS_PER_NODE", "")
    if text:
        parts = [re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part) for part in text.split(",")]
        pairs = [(int(part[1]), int(part[2] or 1)) for part in parts if part]
        if len(pairs) != len(parts):
            raise PmiError(f"SLURM_STEP_TASKS_PER_NODE={text}: must be numbers of tasks such as 2(x3),1")
        nodes["SLURM_STEP_TASKS_PER_NODE"] = sum(times for _, times in pairs)
        tasks = sum(each * times for each, times in pairs)
        if tasks != size:
            raise PmiError(f"SLURM_STEP_TASKS_PER_NODE={text}: these are {tasks} tasks, {counted} says {size}")
    if len(set(nodes.values())) > 1:
        counts = ", ".join(f"{count} in {name}={env[name]}" for name, count in nodes.items())
        raise PmiError(f"the step's nodes must be as many in all variables, not {counts}")


def offered(env: Mapping[str, str]) -> bool:
    """True if this is a task of an srun step. A batch script also has SLURM_PROCID, but is not a step."""
    return "SLURM_STEP_ID" in env and "SLURM_PROCID" in env and "SLURM_JOB_ID" in env
