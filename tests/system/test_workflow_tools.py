"""Workflow tools that know Flux, unchanged: they find our `flux` in PATH and our bindings by `import flux`."""

from __future__ import annotations

import sys
from pathlib import Path

from instance import start

PARSL = """
import parsl
from parsl.config import Config
from parsl.executors import FluxExecutor

@parsl.python_app
def square(number):
    return number * number

@parsl.bash_app
def greet(stdout="greeting"):
    return "echo hello from $FLUX_JOB_ID"

with parsl.load(Config(executors=[FluxExecutor(label="flux", working_dir=".")], run_dir="runs")):
    numbers = [square(number) for number in range(5)]
    print(greet().result(), [future.result() for future in numbers], open("greeting").read().startswith("hello from ƒ"))
"""


def test_parsl_runs_its_tasks_as_jobs(tmp_path: Path) -> None:
    (tmp_path / "workflow.py").write_text(PARSL, encoding="utf-8")
    done = start(f"cd {tmp_path} && {sys.executable} workflow.py", timeout=240)
    assert (done.rc, done.out) == (0, "0 [0, 1, 4, 9, 16] True\n"), done.err
