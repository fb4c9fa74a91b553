"""How many brokers fit: the tightest of what the kernel tells decides, and it is named."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from headrace.broker import capacity

MEBI = 1 << 20


def machine(tmp_path: Path, files: dict[str, str]) -> capacity.Limit | None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return capacity.most_brokers(str(tmp_path / "proc"), str(tmp_path / "groups"))


ROOMY = {
    "proc/meminfo": f"MemTotal: 9 kB\nMemAvailable: {8000 << 10} kB\nSwapFree: {800 << 10} kB\n",
    "proc/sys/kernel/pid_max": "400000\n",
}


@pytest.mark.parametrize(
    ("files", "brokers", "named"),
    [
        ({}, 1100, "8800 MiB of memory (available)"),
        ({"proc/sys/kernel/pid_max": "300\n"}, 75, "300 processes and threads (kernel.pid_max)"),
        (
            {"proc/self/cgroup": "0::/a/b\n", "groups/a/memory.max": f"{64 * MEBI}\n"},
            8,
            "memory.max of control group /a",
        ),
        ({"proc/self/cgroup": "0::/a\n", "groups/a/pids.max": "max\n", "groups/pids.max": "40\n"}, 10, "group /)"),
        (
            {"proc/self/cgroup": "4:cpu,memory:/x\n", "groups/cpu,memory/memory.limit_in_bytes": f"{80 * MEBI}\n"},
            10,
            "memory.limit_in_bytes of control group /",
        ),
        ({"proc/self/cgroup": "8:pids:/\n", "groups/memory.max": "1\n"}, 1100, "available"),
        ({"proc/meminfo": "MemAvailable: 1 kB\n"}, 1, "0 MiB"),
    ],
)
def test_the_tightest_limit_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], brokers: int, named: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    limit = machine(tmp_path, {**ROOMY, **files})
    assert limit is not None and limit.brokers == brokers
    assert named in limit.reason


def test_the_limit_of_a_user_counts_but_not_for_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (8, 8))
    for user, brokers in ((0, 1100), (1000, 2)):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        limit = machine(tmp_path, ROOMY)
        assert limit is not None and limit.brokers == brokers


def test_a_refusal_says_how_many_fit_and_one_broker_is_never_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "most_brokers", lambda: capacity.Limit(12, "96 MiB of memory"))
    assert capacity.refusal(1) == capacity.refusal(12) == ""
    assert capacity.refusal(13) == "13 brokers do not fit this machine: 96 MiB of memory; use 12 or fewer"
    monkeypatch.setattr(capacity, "most_brokers", lambda: None)
    assert capacity.refusal(10**9) == ""
