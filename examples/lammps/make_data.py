"""Writes the HNS crystal as a LAMMPS data file: `python make_data.py > data.hns`.

The facts (cell, masses, atoms) are in hns-crystal.csv; lengths in angstrom, charges in elementary charges. Atom types
count in the order C, H, O, N, which is also the order of the elements in the input's pair_coeff line.
"""

import csv
import re
import sys
from pathlib import Path

MASSES = {"C": 12.0, "H": 1.008, "O": 15.999, "N": 14.0}


def data_file(text: str) -> str:
    """The LAMMPS data file (atom style charge) of a crystal given as CSV with its cell in a comment."""
    comments = [line for line in text.splitlines() if line.startswith("#")]
    rows = list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
    cell = dict(re.findall(r"\b(lx|ly|lz|xy|xz|yz) (-?[0-9.]+)", comments[0]))
    types = {element: number for number, element in enumerate(MASSES, 1)}
    out = ["hexanitrostilbene crystal, one cell", "", f"{len(rows)} atoms", f"{len(types)} atom types", ""]
    out += [f"0.0 {cell['l' + axis]} {axis}lo {axis}hi" for axis in "xyz"]
    out += [f"{cell['xy']} {cell['xz']} {cell['yz']} xy xz yz", "", "Masses", ""]
    out += [f"{number} {MASSES[element]}  # {element}" for element, number in types.items()]
    out += ["", "Atoms  # charge", ""]
    out += [f"{row['id']} {types[row['element']]} {row['charge_e']} {row['x']} {row['y']} {row['z']}" for row in rows]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    sys.stdout.write(data_file(Path(__file__).with_name("hns-crystal.csv").read_text(encoding="utf-8")))
