"""Recorded command lines that need no instance, run by a shell as they were: same output, error text and status."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = Path(__file__).parent.parent / "data" / "commands" / "default.jsonl"

# Beginnings of the command lines that are taken from the recording.
ALONE = (
    "flux R ",
    "(flux R ",
    "flux hostlist -c 'a",
    "flux hostlist -n",
    "flux hostlist -e",
    "flux hostlist -S",
    "flux hostlist -i",
    "flux hostlist -m",
    "flux hostlist -X",
    "flux hostlist -F",
    "flux hostlist 'a[1-'",
    "flux job id ",
    "flux job timeleft -h",
    "flux submit --dry-run",
    "flux submit -t -1",
    "flux submit --requires='('",
    "flux submit --flags=nosuch",
    "flux batch -n1 nosuch.sh",
    "flux resource list -o help",
    "flux resource status -o help",
    "flux queue list -o help",
    "flux config builtin",
    "flux module load -h",
    "flux job kill -s NOSUCH 1",
    "flux uri nosuch:x",
    "flux cancel nosuch",
    "flux job info nosuch R",
    "flux overlay status --no-pretty -s degraded",
    'flux jobs -o "{nosuch}"',
    "printf 'echo hi",
)
# Where the recording left out a part of a usage text, whose sentences are each implementation's own.
CUT = "[rest of the usage text left out]\n"
# The recording was made on a host of this name.
HOST = "vm"


def recorded() -> list[dict]:
    lines = [json.loads(line) for line in COMMANDS.read_text().splitlines()]
    return [line for line in lines if line["command"].startswith(ALONE)]


@pytest.fixture
def shell(tmp_path: Path):
    """Run a line by `sh -c` in an empty folder where `flux` is ours."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    script = bin_folder / "flux"
    script.write_text(
        f"#!{sys.executable}\nimport os, sys\nfrom headrace.cli.main import flux\n"
        # The host's name is part of what R encode prints.
        "name = os.uname()\n"
        f"os.uname = lambda: os.uname_result(({'name.sysname'}, {HOST!r}, name.release, name.version, name.machine))\n"
        "sys.exit(flux())\n"
    )
    script.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    (home / "lab.out").write_text("0: 0\n")

    def run(line: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "HOME": str(home), "LANG": "C.UTF-8"}
        env.pop("FLUX_URI", None)
        return subprocess.run(  # noqa: PLW1510
            ["sh", "-c", line], capture_output=True, text=True, cwd=home, env=env, stdin=subprocess.DEVNULL, timeout=30
        )

    return run


@pytest.mark.parametrize("line", recorded(), ids=lambda line: line["command"][:60])
def test_line_answers_as_recorded(line, shell):
    if " jq " in line["command"] and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    done = shell(line["command"])
    usage, cut, _ = line["stderr"].partition(CUT)
    assert done.stderr == usage or (cut and done.stderr.startswith(usage))
    assert done.stdout == line["stdout"]
    assert done.returncode == line["rc"]


def test_the_selection_is_not_empty():
    assert len(recorded()) > 40
