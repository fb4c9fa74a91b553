"""How many brokers fit: the tightest of what the kernel tells decides, and it is named."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from headrace.engine.broker.launch import capacity

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
        ({"proc/sys/kernel/pid_max": "300\n"}, 74, "300 processes and threads (kernel.pid_max)"),
        (
            {"proc/self/cgroup": "0::/a/b\n", "groups/a/memory.max": f"{64 * MEBI}\n"},
            8,
            "memory.max of control group /a",
        ),
        ({"proc/self/cgroup": "0::/a\n", "groups/a/pids.max": "max\n", "groups/pids.max": "40\n"}, 9, "group /)"),
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


@pytest.mark.parametrize(("limit", "brokers"), [(1, 0), (19, 2), (18, 1), (4002, 1000)])
def test_what_a_user_has_left_counts_but_not_for_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, brokers: int
) -> None:
    ours = f"Name:\tone\nUid:\t{os.getuid()}\t1\t1\t1\nThreads:\t9\n"
    files = {**ROOMY, "proc/1/status": ours, "proc/2/status": "Uid:\t77\t1\t1\t1\nThreads:\t99\n", "proc/3/comm": ""}
    limits = {resource.RLIMIT_NPROC: (limit, limit)}
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits.get(which, (10**6, 10**6)))
    for user, most in ((0, 1100), (1000, brokers)):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        found = machine(tmp_path, files)
        assert found is not None and found.brokers == most


@pytest.mark.parametrize(
    ("count", "brokers"), [(19, 0), (20, 1), (30, 1), (31, 2), (61, 22), (62, 23), (2216, 1100), (-1, 1100)]
)
def test_brokers_need_some_open_files_and_who_forks_them_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, brokers: int
) -> None:
    limits = {resource.RLIMIT_NOFILE: (count, count)}
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits.get(which, (10**6, 10**6)))
    found = machine(tmp_path, ROOMY)
    assert found is not None and found.brokers == brokers


def test_a_refusal_says_how_many_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "most_brokers", lambda: capacity.Limit(12, "96 MiB of memory"))
    assert capacity.refusal(1) == capacity.refusal(12) == ""
    assert capacity.refusal(13) == "13 brokers do not fit this machine: 96 MiB of memory; use 12 or fewer"
    monkeypatch.setattr(capacity, "most_brokers", lambda: capacity.Limit(0, "9 open files"))
    assert capacity.refusal(1) == capacity.refusal(2) == "no broker fits this machine: 9 open files"
    monkeypatch.setattr(capacity, "most_brokers", lambda: None)
    assert capacity.refusal(10**9) == ""
