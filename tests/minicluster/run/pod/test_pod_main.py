"""What a pod's program imports before its broker starts, and what it says to arguments that it does not know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace import __version__

_PROGRAM = str(Path(sys.executable).with_name("headrace-pod"))


def test_a_runner_loads_nothing_that_only_builders_of_plans_and_few_pods_use() -> None:
    bare = "from headrace.engine.broker import bare_imports; bare_imports.load_small()"
    started = f"{bare}; import headrace.minicluster.run.pod.runner"
    code = f"import sys; sys.path[:0] = {sys.path}; {started}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-IS", "-c", code], check=True, capture_output=True, text=True)
    rare = {"argparse", "asyncio", "decimal", "json", "shlex", "subprocess", "tomllib", "uuid", "yaml", "zmq"}
    rare |= {f"headrace.minicluster.{name}" for name in ("fields", "plan", "validate", "pod.channel_server")}
    assert rare.intersection(loaded.stdout.split()) == set()


@pytest.mark.parametrize("words", [["sidecar"], ["sidecar", "1", "2"], ["fly"]])
def test_other_arguments_are_told_the_usage(words: list[str]) -> None:
    done = subprocess.run([_PROGRAM, *words], capture_output=True, text=True, check=False)
    usage = "usage: headrace-pod [cluster [COMMAND [ARGUMENT]...] | sidecar INDEX | --version]\n"
    assert (done.returncode, done.stderr) == (2, usage)


@pytest.mark.parametrize("word", ["enter", "broker"])
def test_what_the_runner_calls_is_nothing_for_users(word: str) -> None:
    done = subprocess.run([_PROGRAM, word], capture_output=True, text=True, check=False)
    assert (done.returncode, "may call this" in done.stderr) == (2, True)


def test_its_version_is_that_of_headrace() -> None:
    done = subprocess.run([_PROGRAM, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"headrace-pod {__version__}\n"


@pytest.mark.parametrize(("words", "folder"), [([], "/flux_operator"), (["cluster", "true"], "/mnt/headrace")])
def test_a_pod_without_its_plan_says_so(words: list[str], folder: str) -> None:
    done = subprocess.run([_PROGRAM, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.startswith(f"headrace-pod: {folder}/plan.json: ")) == (1, True)
