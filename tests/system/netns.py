"""Two network namespaces joined by a cable that can be pulled: hosts of their own as far as brokers can tell.

Needs root and `ip` of iproute2. Names hold this process's id, so that test runs do not meet.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

_NET = "10.213.77"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Pair:
    """Host `0` and host `1`; a command runs on one when it is prefixed with `on(host)`."""

    def __init__(self, names: tuple[str, str]) -> None:
        self._names = names

    def on(self, host: int) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self._names[host])

    @staticmethod
    def address(host: int) -> str:
        return f"{_NET}.{host + 1}"

    def only_ipv4(self) -> None:
        """Take the IPv6 addresses from the cable."""
        for name in self._names:
            _ip("-n", name, "-6", "addr", "flush", "dev", "cable")

    def link(self, up: bool) -> None:
        """Plug the cable in, or pull it."""
        _ip("-n", self._names[1], "link", "set", "cable", "up" if up else "down")


@contextlib.contextmanager
def pair() -> Iterator[Pair]:
    """The namespaces, with the cable plugged in. Skips the test where they cannot be made."""
    if os.getuid() != 0:
        pytest.skip("needs root to make network namespaces")
    if shutil.which("ip") is None:
        pytest.skip("needs ip of iproute2: `make packages` installs it")
    names = (f"hr{os.getpid()}a", f"hr{os.getpid()}b")
    made = []
    try:
        for name in names:
            try:
                _ip("netns", "add", name)
            except subprocess.CalledProcessError as exc:
                pytest.skip(f"this machine makes no network namespaces: {exc.stderr.strip()}")
            made.append(name)
        _ip("-n", names[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", names[1])
        for host, name in enumerate(names):
            _ip("-n", name, "addr", "add", f"{Pair.address(host)}/24", "dev", "cable")
            _ip("-n", name, "link", "set", "cable", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield Pair(names)
    finally:
        for name in made:
            _ip("netns", "del", name)
