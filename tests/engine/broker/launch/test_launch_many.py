"""A test instance that cannot be made is refused, with a reason, before anything is forked; followers share little."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.broker.launch import many
from headrace.engine.broker.launch.many import start_many
from headrace.engine.broker.launch.options import LaunchError, LaunchOptions


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"attrs": {"tbon.topo": "moebius:3"}}, "unknown topology scheme"),
        ({"attrs": {"broker.quorum": "9"}}, "9"),
        ({"attrs": {"nonsense": "1"}}, "nonsense: unknown attribute"),
        ({"hosts": ["a", "b", "c"]}, "--test-hosts names 3 hosts, the instance has 2 brokers"),
        ({"attrs": {"rundir": "/proc/nope"}}, "no folder can be made in /proc"),
    ],
)
def test_a_refusal_forks_nothing_and_leaves_no_run_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], why: str
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # This process shall go on to be interrupted, and keep its name and limits.
    for name in ("signals.block", "linux.name_process", "raise_file_limit"):
        monkeypatch.setattr(f"headrace.engine.broker.launch.many.{name}", lambda *_args: None)
    monkeypatch.setattr(many, "fork_zygote", lambda *_args: pytest.fail("forked"))
    with pytest.raises(LaunchError, match=why):
        start_many(LaunchOptions(size=2, **options))
    assert not os.listdir(tmp_path)


def test_followers_are_forked_without_what_only_leaders_and_jobs_use() -> None:
    # Each of these would be in the memory of every idle follower.
    rare = {
        *(f"engine.broker.boot.{name}" for name in ("pmi", "slurm", "pmi_clients")),
        *("wire.client.handle", "engine.agent.environments"),
        *(f"engine.modules.{name}" for name in ("job_exec.leader", "resource.leader", "resource.source")),
        *("engine.modules.resource.node_topology",),
        *(f"formats.spec.{name}" for name in ("jobspec", "jobspec_validate", "ranges", "rset", "constraint")),
        *(f"formats.spec.requests.{name}" for name in ("jobs", "kvs", "sched")),
    }
    assert all(importlib.util.find_spec(f"headrace.{name}") for name in rare)
    preload = "from headrace.engine.broker.launch import many as _many, preload; preload.preload(True)"
    code = f"import sys; sys.path[:0] = {sys.path}; {preload}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "headrace.engine.modules.job_exec.node" in loaded
    assert not {f"headrace.{name}" for name in rare} & set(loaded)
