"""`flux mini run` and its kin of Flux until 2023, and what remains a MiniCluster's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli.mini import main as mini
from headrace.cli.mini import program


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a MiniCluster, a program, a file that is named as a program of the system, and a folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("cluster", "cluster.yaml", "job.sh", "sleep"):
        Path(name).write_text("#!/bin/sh\n")
    Path("job.sh").chmod(0o755)
    Path("data").mkdir()


@pytest.mark.parametrize(
    "line",
    [
        "submit -n1 hostname",
        "batch cluster.yaml",
        "alloc",
        "bulksubmit x ::: 1",
        "run hostname",
        "run -n2 hostname",
        "run ./job.sh",
        "run job.sh cluster.yaml",
        "run -o pmi.yaml ./job.sh",
        "run -q debug ./job.sh",
        "run -q cluster ./job.sh",
        "run sleep",
        "run no-such-program",
        "run -n2",
        "run -n2 cluster",
        "run -- cluster",
    ],
)
def test_what_was_a_command_of_flux_is_run_as_one(line: str) -> None:
    assert mini._submits_job(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "run",
        "run --help",
        "run -",
        "run cluster",
        "run -q --json cluster",
        "run cluster.yaml",
        "run no-such-file.yml",
        "run no-such-folder/file",
        "run /",
        "run data",
        "run cluster.yaml extra",
        "run cluster.yaml sleep",
        "run --json cluster.yaml extra",
        "run --no-such-option cluster.json",
        "validate hostname",
        "run-x hostname",
        "--help",
    ],
)
def test_what_names_a_minicluster_stays_a_command_of_mini(line: str) -> None:
    assert not mini._submits_job(line.split())


def test_the_command_that_was_meant_is_run_with_one_line_of_notice() -> None:
    code = "from headrace.cli.main import flux; flux()"
    words = [sys.executable, "-c", code, "mini", "run", "--dry-run", "-n2", "hostname"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert '"command": ["hostname"]' in done.stdout
    assert done.stderr == "headrace-mini: `flux mini run` is the old syntax (until 2023): running `flux run`\n"


def test_the_plugin_of_kubectl_has_no_such_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "command", "kubectl minicluster")
    with pytest.raises(SystemExit):
        mini.main(["submit", "hostname"])
    assert "invalid choice: 'submit'" in capsys.readouterr().err
