"""Workflow tools that know Flux, unchanged: they find our `flux` in PATH and our bindings by `import flux`.

What the extra `test` brings runs in CI. A soak installs the other tools from the registry, and runs the tests for Flux
that they have themselves, as far as their source distributions hold them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from instance import start

from sizes import limit, size

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

EXECUTORLIB = """
from executorlib import FluxJobExecutor

def square(number):
    return number * number

def level():
    import os, flux
    return flux.Flux().attr_get("instance-level"), os.environ["FLUX_JOB_ID"][:1]

if __name__ == "__main__":
    resources = {"cores": 1, "gpus_per_core": 0, "num_nodes": 1}
    for options in ({}, {"block_allocation": True}, {"resource_dict": resources}):
        with FluxJobExecutor(max_cores=2, **options) as executor:
            print([future.result() for future in [executor.submit(square, number) for number in range(5)]])
    with FluxJobExecutor(max_cores=2) as executor:
        doubled = executor.submit(square, executor.submit(square, 3))
        print(doubled.result(), executor.submit(level).result())
"""

STUDY = """
description: {name: hello, description: Two steps on Flux}
batch: {type: flux, host: here, bank: none, queue: none, version: 0.49.0}
study:
  - name: first
    description: says how deep it is nested
    run: {cmd: 'flux getattr instance-level > said', nodes: 1, procs: 1, cores per task: 1, walltime: "00:01:00"}
  - name: second
    description: is after the first
    run: {cmd: "cat $(first.workspace)/said > again", depends: [first], nodes: 1, procs: 1, walltime: "00:01:00"}
"""

CHECK = """
import reframe as rfm
import reframe.utility.sanity as sn

@rfm.simple_test
class Hello(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "echo"
    executable_opts = ["hello from $FLUX_JOB_ID"]

    @sanity_function
    def said(self):
        return sn.assert_found("hello from ƒ", self.stdout)
"""

SITE = """
partition = {"name": "default", "scheduler": "flux", "launcher": "local", "environs": ["builtin"]}
site_configuration = {
    "systems": [{"name": "instance", "hostnames": [".*"], "partitions": [partition]}],
    "environments": [{"name": "builtin"}],
}
"""


class Tool(NamedTuple):
    """A use of a tool: what it is installed with beyond the extra `test`, its files, a command, and what that prints.

    `source` names a package whose source distribution is unpacked where the command runs.
    """

    name: str
    command: str
    prints: str
    files: dict[str, str]
    packages: tuple[str, ...] = ()
    source: str = ""


_PYTEST = "python -m pytest -q -p no:cacheprovider"
TOOLS = [
    Tool("parsl", "python workflow.py", "0 [0, 1, 4, 9, 16] True\n", {"workflow.py": PARSL}),
    Tool(
        "executorlib",
        "python workflow.py",
        "[0, 1, 4, 9, 16]\n" * 3 + "81 ('0', 'ƒ')\n",
        {"workflow.py": EXECUTORLIB},
    ),
    Tool(
        "maestro",
        "maestro run -fg -s 1 --autoyes -o out study.yaml >log 2>&1; cat out/second/again",
        "1\n",
        {"study.yaml": STUDY},
        ("maestrowf",),
    ),
    Tool(
        "reframe",
        "reframe -C site.py -c check.py -r --nocolor | grep -o 'PASSED.*case(s)'",
        "PASSED  ] Ran 1/1 test case(s)\n",
        {"site.py": SITE, "check.py": CHECK},
        ("reframe-hpc",),
    ),
    Tool(
        "parsl's own tests",
        f"{_PYTEST} parsl/tests/test_flux.py --config local | grep -oE '^10 passed'",
        "10 passed\n",
        {},
        # Parsl's conftest.py has a hook in a form that later versions of pytest refuse.
        ("parsl", "pytest<8"),
        "parsl",
    ),
    Tool(
        "canary's own tests",
        f"{_PYTEST} src/canary_flux/tests/*.py | grep -oE '^[0-9]+ (passed|failed)'",
        "18 passed\n",
        {},
        ("canary-wm", "pytest"),
        "canary-wm",
    ),
]


def _pip(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", *arguments, "-q", "--disable-pip-version-check"], check=True)


def _folder_with_python(tool: Tool, folder: Path) -> Path:
    """The folder of the Python that has the tool, which is made in `folder` unless it is ours."""
    if not tool.packages:
        return Path(sys.executable).parent
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    _pip(folder / "bin/python", "install", *tool.packages)
    return folder / "bin"


def _unpack(tool: Tool, python: Path, into: Path) -> Path:
    """The folder of the tool's source distribution."""
    _pip(python, "download", "--no-deps", "--no-binary", tool.source, "-d", str(into), tool.source)
    (archive,) = into.glob("*.tar.gz")
    subprocess.run(["tar", "xzf", archive, "-C", into], check=True)
    return into / archive.name.removesuffix(".tar.gz")


@pytest.mark.soak
@pytest.mark.timeout(limit(300))
@pytest.mark.parametrize("tool", TOOLS[: size("tools")], ids=lambda tool: tool.name)
def test_a_tool_runs_its_work_as_jobs(tool: Tool, tmp_path: Path) -> None:
    programs = _folder_with_python(tool, tmp_path / "venv")
    work = tmp_path / "work"
    work.mkdir()
    for name, text in tool.files.items():
        (work / name).write_text(text, encoding="utf-8")
    if tool.source:
        work = _unpack(tool, programs / "python", work)
    done = start(f"cd {work} && export PATH={programs}:$PATH && {tool.command}", timeout=limit(240))
    assert (done.rc, done.out) == (0, tool.prints), done.err
