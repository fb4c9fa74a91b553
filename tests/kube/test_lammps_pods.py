"""The README's example, the file that `headrace mini run` takes, on four pods of a Debian image (`make kube-run`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from running_operator import MiniClusters

_FILE = Path(__file__).parents[2] / "examples/lammps.yaml"
# Columns of the example's table: Step Temp PotEng TotEng Press Volume.
_TOTAL_ENERGY = 3

# Four ranks wait busily for each other on what cores there are.
_SECONDS = 600


def test_four_pods_compute_what_the_example_computes(miniclusters: MiniClusters, image: Callable[[str], str]) -> None:
    assert yaml.safe_load(_FILE.read_text())["spec"]["containers"][0]["image"] == image("lammps")
    miniclusters.kubectl("apply", "-f", str(_FILE))
    status = miniclusters.ended("lammps", _SECONDS)
    said = miniclusters.log("lammps")
    assert status["phase"] == "Finished", said
    # Without MPI between them, each rank would be a run of its own.
    assert re.findall(r"on (\d+) procs for (\d+) steps with (\d+) atoms", said) == [("4", "10", "304")]
    rows = said.partition("TotEng")[2].partition("Loop time")[0].splitlines()[1:]
    table = [[float(field) for field in row.split()] for row in rows]
    assert [row[0] for row in table] == [0, 5, 10]
    assert table[0][_TOTAL_ENERGY] == pytest.approx(-36672.047, rel=1e-6)
