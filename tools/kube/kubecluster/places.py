"""Where things lie: the cache of built programs, the state of each cluster, and the addresses that a cluster uses.

Every cluster has a slot, a number from 0 to 31, which gives it a /20 of 198.18.0.0/15. That range is set aside for
benchmarks (RFC 2544), so it meets no network that the machine is connected to.

    .0/26     the cable between the machine and the cluster: .1 machine, .2 control plane and DNS, .3 and on: the nodes
    +1024/22  Services
    +2048/21  pods: a /22 for each of two nodes
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import KubeError

SLOTS = 32
NODES = 2
_RANGE = int(ipaddress.ip_address("198.18.0.0"))
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


def cache() -> Path:
    """The folder of built programs and base images."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "headrace" / "kube"


@contextlib.contextmanager
def making_images() -> Iterator[None]:
    """Only one process at a time makes images for the cache; those that waited find what it has made."""
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / ".images.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def states() -> Path:
    """The folder that holds one folder a cluster; made with mode 0700, and refused where another user owns it."""
    folder = Path(tempfile.gettempdir()) / f"headrace-kube-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or folder.is_symlink():
        raise KubeError(f"{folder}: belongs to somebody else or is open to others: remove it")
    return folder


def state(name: str) -> Path:
    """The state folder of cluster `name`, which need not exist."""
    if not _NAME.fullmatch(name):
        raise KubeError(f"cluster name {name!r}: at most 32 of a-z, 0-9 and '-', beginning and ending with no '-'")
    return states() / name


@dataclass(frozen=True)
class Addresses:
    """The addresses of the cluster in one slot."""

    slot: int

    def _at(self, offset: int) -> str:
        return str(ipaddress.ip_address(_RANGE + self.slot * 4096 + offset))

    @property
    def cable(self) -> str:
        """Name of the machine's end of the cable."""
        return f"hrkube{self.slot}"

    @property
    def all(self) -> str:
        return f"{self._at(0)}/20"

    @property
    def machine(self) -> str:
        """Where processes of this machine (webhooks, an operator) are reached from the cluster."""
        return self._at(1)

    @property
    def control_plane(self) -> str:
        return self._at(2)

    def node(self, index: int) -> str:
        return self._at(3 + index)

    @property
    def services(self) -> str:
        return f"{self._at(1024)}/22"

    @property
    def pods(self) -> str:
        return f"{self._at(2048)}/21"

    def pods_of(self, index: int) -> str:
        return f"{self._at(2048 + 1024 * index)}/22"

    @property
    def server(self) -> str:
        return f"https://{self.control_plane}:6443"
