"""Boot from SLURM_* variables alone: `srun flux start` where srun offers no process manager that we speak.

Tasks of a step meet in a folder of the user's home, which the nodes of a cluster share: each writes one file of mode
0600 with its host, endpoint and public key, and reads those of its parent and children. Keys are random as everywhere.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping

from .pmi_client import PmiError

_PATIENCE = 60.0
_POLL = 0.02


class SlurmMeeting:
    """The exchange of one Slurm step, with the methods that a PMI client has. Raises PmiError."""

    def __init__(self, env: Mapping[str, str]) -> None:
        try:
            self.rank = int(env["SLURM_PROCID"])
            self.size = int(env.get("SLURM_STEP_NUM_TASKS") or env["SLURM_NTASKS"])
            self.kvsname = f"{env['SLURM_JOB_ID']}.{env['SLURM_STEP_ID']}"
            home = env.get("HEADRACE_SLURM_DIR") or os.path.join(env["HOME"], ".cache", "headrace")
        except (KeyError, ValueError) as exc:
            raise PmiError(f"Slurm's variables are not complete: {exc}") from None
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
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                with open(os.path.join(self.folder, key), encoding="utf-8") as file:
                    return file.read()
            except FileNotFoundError:
                if time.monotonic() > deadline:
                    raise PmiError(f"{self.folder}/{key}: not written by its task in {_PATIENCE:.0f} s") from None
                time.sleep(_POLL)
            except OSError as exc:
                raise PmiError(f"{self.folder}/{key}: {exc.strerror}") from None

    def lookup(self, key: str) -> str:
        if key == "PMI_process_mapping" and self._single:
            return f"(vector,(0,1,{self.size}))"
        return ""

    def barrier(self) -> None:
        """Nothing to wait for: reading waits for what it reads."""

    def finalize(self) -> None:
        """Say that we have read; the last task removes the folder."""
        self.put(f"done.{self.rank}", "")
        try:
            done = sum(name.startswith("done.") and not name.endswith(".new") for name in os.listdir(self.folder))
        except OSError:
            return
        if done == self.size:
            shutil.rmtree(self.folder, ignore_errors=True)


def offered(env: Mapping[str, str]) -> bool:
    """True for a task of an srun step; a batch script has SLURM_PROCID too, but is no step of its own."""
    return "SLURM_STEP_ID" in env and "SLURM_PROCID" in env and "SLURM_JOB_ID" in env
