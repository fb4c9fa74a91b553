"""Leads that break the rules of the channel: each loses its own, and costs nobody else more than a moment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hostile_lead import HOW

from headrace.formats.spec.curve_certificate import key_pair
from headrace.minicluster.operator import links as links_module
from headrace.minicluster.operator.keys import fresh_keys
from headrace.minicluster.operator.links import Keys, Links
from waiting import until_in_loop

HOSTILE = Path(__file__).parents[2] / "minicluster/run/pod/hostile_lead.py"
TOLD = {
    "strays": "10 messages a second",
    "states": "10 messages a second",
    "large": "32 KiB a second",
    "larger": "violated the protocol",
    "parts": "32 KiB a second",
    "junk": "an invalid message: not JSON",
    "deep": "an invalid message: not JSON",
    "endless": "an invalid message: not JSON",
    "constant": "an invalid message: not JSON: NaN is not a number",
    "types": "an invalid state: Expected `int`, got `str` - at `$.brokers_up`",
    "hosts": "an invalid state: Expected `str` of length <= 16384 - at `$.silent`",
    "unhashable": "10 messages a second",
}


@contextlib.contextmanager
def hostile(tmp_path: Path, how: str) -> Iterator[tuple[str, Keys]]:
    """A lead that runs and does that: its address, and the keys for it."""
    made = fresh_keys()
    certificate = tmp_path / "channel.cert"
    certificate.write_text(made.channel)
    keys = Keys(key_pair(made.channel)[0], *key_pair(made.channel_client))
    command = [sys.executable, str(HOSTILE), str(certificate), "tcp://127.0.0.1:*", how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"tcp://127.0.0.1:{process.stdout.readline().strip()}", keys
        finally:
            process.kill()


def resident() -> int:
    """The resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("how", HOW)
def test_a_lead_that_breaks_the_rules_loses_its_channel_and_nobody_else_waits(tmp_path: Path, how: str) -> None:
    async def run(address: str, keys: Keys) -> None:
        changes: list[str] = []
        links = Links(changes.append)
        links.connect("uid", address, keys)
        before, turns = resident(), [time.thread_time()]

        def is_closed() -> bool:
            turns.append(time.thread_time())
            return bool(links.closed("uid"))

        await until_in_loop(is_closed)
        longest = max(after - before for before, after in pairwise(turns))
        assert TOLD[how] in links.closed("uid")
        assert longest < 0.2, "one turn of the loop took so much CPU time"
        assert resident() - before < 30_000_000
        assert links.address("uid") == "" and links.lead("uid") is None
        assert len(changes) <= 10
        links.connect("uid", address, keys)
        assert links.address("uid") == "", "it is not listened to at once again"
        links.close()

    with hostile(tmp_path, how) as (address, keys):
        asyncio.run(run(address, keys))


def test_a_lead_that_goes_on_is_listened_to_ever_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "_CLOSED", 0.5)
    monkeypatch.setattr(links_module, "_LONGEST_CLOSED", 3.0)

    pauses: list[float] = []
    close = Links._close

    def recorded(links: Links, uid: str, why: str) -> None:
        began = time.monotonic()
        close(links, uid, why)
        pauses.append(round(links._breaches[uid].until - began, 1))

    monkeypatch.setattr(Links, "_close", recorded)

    async def run(address: str, keys: Keys) -> None:
        links = Links(lambda uid: links.connect(uid, address, keys))
        links.connect("uid", address, keys)
        try:
            await until_in_loop(lambda: len(pauses) >= 4)
        finally:
            links.close()
        assert pauses[:4] == [0.5, 1.0, 2.0, 3.0]

    with hostile(tmp_path, "states") as (address, keys):
        asyncio.run(run(address, keys))
