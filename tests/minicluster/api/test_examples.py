"""The examples are valid MiniClusters, and LAMMPS's data file is what our script writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.minicluster.api.unapplied import not_applied
from headrace.minicluster.api.validate import load

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_is_valid_and_wholly_applied_on_one_machine(path: Path) -> None:
    # An image is for pods alone; the command runs without it.
    assert set(not_applied(load(path.read_text(encoding="utf-8")).cluster)) <= {"spec.containers[0].image"}


def test_the_crystal_data_is_what_the_script_makes_of_the_table() -> None:
    script = EXAMPLES / "lammps/make_data.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout == (EXAMPLES / "lammps/data.hns").read_text(encoding="utf-8")
    assert "304 atoms" in done.stdout
