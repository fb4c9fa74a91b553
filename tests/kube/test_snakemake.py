"""Snakemake as a launcher: its executor for Flux submits each step as a job of the MiniCluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from running_operator import MiniClusters

_WORKFLOW = """
rule all:
    input: "all.txt"
rule part:
    output: "{name}.part"
    shell: "echo {wildcards.name} of job $FLUX_JOB_SIZE > {output}"
rule whole:
    input: "a.part", "b.part"
    output: "all.txt"
    shell: "cat {input} > {output}"
"""


def test_steps_of_a_workflow_are_jobs(miniclusters: MiniClusters, image: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(_WORKFLOW)
    container = {
        "image": image("snakemake"),
        "command": "snakemake --executor flux --jobs 2 --default-resources mem_mb=1 && flux jobs -a --no-header",
        "launcher": True,
        "workingDir": "/workflow",
        "volumes": {"data": {"path": "/workflow", "hostPath": str(tmp_path)}},
        "environment": {"HOME": "/workflow", "XDG_CACHE_HOME": "/workflow/cache"},
    }
    miniclusters.apply("flow", size=2, containers=[container], logging={"quiet": True})
    assert miniclusters.ended("flow")["phase"] == "Finished", miniclusters.log("flow")
    assert (tmp_path / "all.txt").read_text() == "a of job 1\nb of job 1\n"
    # Two parts, the whole, and what needs all: the rule without a command is no job.
    assert miniclusters.status("flow")["jobs"]["inactive"] == 3
