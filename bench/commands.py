"""Wall time of the commands people type most, and of an MPI hello against `mpiexec` of the same MPI."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from measure import Row, against, flux_command, report, seconds
from spawn import spawn_rate

# What it is called, its arguments, our bar and what flux-core took, in milliseconds.
COMMANDS = (
    ("flux run true", ["run", "true"], 60, 160),
    ("flux submit true", ["submit", "true"], 40, 130),
    ("flux jobs", ["jobs"], 45, 100),
    ("flux getattr size", ["getattr", "size"], 30, 10),
)
WIDE = ("flux run -N16 true", ["run", "-N16", "true"], 130, 377)


def command(name: str, args: list[str], bar: float, recorded: float, repeat: int) -> Row:
    bare = spawn_rate(1000, 2)
    took = 1000 * seconds([flux_command(), *args], repeat)
    bare = (bare + spawn_rate(1000, 2)) / 2
    return Row(name, took, "ms", f"<= {bar:.0f}", against(recorded, took, bare, bar))


def inside(repeat: int, hello: str, mpiexec: str) -> list[Row]:
    flux = flux_command()
    rows = [command(*each, repeat) for each in COMMANDS]
    if hello:
        peer = 1000 * seconds([mpiexec, "-n", "2", hello], repeat)
        ours = 1000 * seconds([flux, "run", "-n2", hello], repeat)
        rows.append(Row("mpiexec -n 2 hello", peer, "ms"))
        rows.append(Row("flux run -n2 hello", ours, "ms", "within 50 of mpiexec", f"{ours - peer:+.0f} ms"))
    return rows


def copies(count: int) -> Row:
    """`flux submit --cc` with the queue stopped, so that only submission is timed."""
    flux = flux_command()
    subprocess.run([flux, "queue", "stop", "--all"], check=True, stdout=subprocess.DEVNULL)
    took = seconds([flux, "submit", "--quiet", f"--cc=1-{count}", "true"])
    subprocess.run([flux, "cancel", "--all"], check=True, stderr=subprocess.DEVNULL)
    subprocess.run([flux, "queue", "start", "--all"], check=True, stdout=subprocess.DEVNULL)
    return Row(f"flux submit --cc=1-{count}", count / took, "jobs/s", ">= 3,000")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--hello", default="", help="an MPI program linked with MPICH")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside == 1:
        report([*inside(options.repeat, options.hello, options.mpiexec), copies(10_000)], options.json)
    elif options.inside:
        # A job over 16 brokers of this machine, in an instance of that size.
        report([command(*WIDE, options.repeat)], options.json)
    else:
        for size in (1, 16):
            argv = [sys.executable, os.path.abspath(__file__), f"--inside={size}", *sys.argv[1:]]
            subprocess.run([flux_command(), "start", f"--test-size={size}", *argv], check=True)


if __name__ == "__main__":
    main()
