"""`make soak`: each test of a chosen size (sizes.py) by itself, at a soak's size; all properties with new examples.

    python tests/soak.py [--into FOLDER] [--only WORD]... [PATH...]

Says which piece is on and, every minute, for how long; a piece that fails ends neither the others nor their report.
FOLDER (build/soak) gets a log for each piece and `result.md`, the table for bench/soak.md; it is written anew after
each piece, so that a soak that was interrupted has a result, too. Ends with 1 if a piece failed, was skipped, or none
was found. The sizes can be chosen as for any test, by HEADRACE_SIZES.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
# pyproject.toml asks for -q, with which a collection names files only.
_PYTEST = (sys.executable, "-m", "pytest", "-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider", "-q")
_EVERY = 60.0
# The tests with hypothesis, which CI runs with the same examples each time.
PROPERTIES = "properties"


class Outcome(NamedTuple):
    """What became of a piece: its tests by how they ended, what they printed or why they failed, seconds."""

    piece: str
    passed: int
    failed: int
    skipped: int
    said: list[str]
    wall: float
    cpu: float

    @property
    def good(self) -> bool:
        return self.passed > 0 and not self.failed and not self.skipped


def pieces(collected: str) -> list[str]:
    """The test functions of a collection's lines, each once: the cases of one are a single piece."""
    found = [line.partition("[")[0] for line in collected.splitlines() if "::" in line]
    return list(dict.fromkeys(found))


def outcome(piece: str, report: str, wall: float, cpu: float) -> Outcome:
    """An outcome from a report in JUnit's XML; an empty report is a piece that died."""
    if not report:
        return Outcome(piece, 0, 1, 0, ["pytest ended without a report"], wall, cpu)
    counts = {"failure": 0, "error": 0, "skipped": 0}
    said: list[str] = []
    passed = 0
    for case in ElementTree.fromstring(report).iter("testcase"):
        ends = [child for child in case if child.tag in counts]
        passed += not ends
        for end in ends:
            counts[end.tag] += 1
            why = (end.get("message") or "").partition("\n")[0]
            said.append(f"{case.get('name')}: {end.tag}: {why}")
        printed = (line.strip() for out in case.iter("system-out") for line in (out.text or "").splitlines())
        said += [line for line in printed if line and not line.startswith("---")]
    return Outcome(piece, passed, counts["failure"] + counts["error"], counts["skipped"], said, wall, cpu)


def table(outcomes: Iterable[Outcome], about: str) -> str:
    """The result as Markdown."""
    rows = ["| piece | result | printed | wall | CPU |", "|---|---|---|---|---|"]
    for one in outcomes:
        ended = [f"{count} {word}" for word, count in zip(("passed", "failed", "skipped"), one[1:4]) if count]
        said = "; ".join(one.said[:6]).replace("|", "\\|")
        rows.append(f"| `{one.piece}` | {', '.join(ended)} | {said} | {one.wall:.0f} s | {one.cpu:.0f} s |")
    return f"{about}\n\n" + "\n".join(rows) + "\n"


def run(piece: str, paths: list[str], folder: Path, say: Callable[[str], None]) -> Outcome:
    """Run a piece, the properties from those below `paths`; its output goes to a log in `folder`."""
    name = piece.rpartition("/")[2].replace("::", "-")
    report = folder / f"{name}.xml"
    report.unlink(missing_ok=True)
    which = ["-m", "hypothesis", *paths] if piece == PROPERTIES else ["-m", "soak", piece]
    argv = [*_PYTEST, "-o", "junit_logging=system-out", f"--junitxml={report}", *which]
    begin = shown = time.monotonic()
    with open(folder / f"{name}.log", "wb") as log:
        child = subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "HEADRACE_SOAK": "1"}, stdout=log, stderr=log)
        while True:
            pid, _status, usage = os.wait4(child.pid, os.WNOHANG)
            now = time.monotonic()
            if pid:
                child.returncode = 0
                break
            if now - shown >= _EVERY:
                shown = now
                say(f"    {now - begin:.0f} s")
            time.sleep(0.2)
    text = report.read_text() if report.exists() else ""
    return outcome(piece, text, now - begin, usage.ru_utime + usage.ru_stime)


def _about() -> str:
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    return (
        f"{time.strftime('%d %B %Y')}, commit {commit or 'unknown'}, {os.cpu_count()} cores, {platform.system()} "
        f"{platform.release()}, CPython {platform.python_version()}, load average at the end {load}."
    )


def _collected(mark: str, paths: list[str]) -> str:
    """What pytest says of the tests with a mark that it finds."""
    argv = [*_PYTEST, "--collect-only", "-m", mark, *paths]
    return subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "soak", metavar="FOLDER")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="pieces whose name has the word")
    parser.add_argument("paths", nargs="*", default=["tests"], metavar="PATH", help="where its tests are looked for")
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    collected = _collected("soak", options.paths)
    every = [*pieces(collected), *([PROPERTIES] if pieces(_collected("hypothesis", options.paths)) else [])]
    chosen = [each for each in every if not options.only or any(word in each for word in options.only)]
    done: list[Outcome] = []

    def say(text: str) -> None:
        print(text, flush=True)

    if not chosen:
        say(f"no tests to soak:\n{collected}")
    for number, piece in enumerate(chosen, 1):
        say(f"[{number} of {len(chosen)}] {piece}")
        done.append(run(piece, options.paths, options.into, say))
        last = done[-1]
        say(f"    {'good' if last.good else 'NOT GOOD'} after {last.wall:.0f} s: {'; '.join(last.said[:3])}")
        (options.into / "result.md").write_text(table(done, _about()))
    bad = [one.piece for one in done if not one.good]
    say(f"{len(done) - len(bad)} of {len(done)} pieces good; {options.into}/result.md has the table")
    for piece in bad:
        say(f"not good: {piece}")
    return 0 if done and not bad else 1


if __name__ == "__main__":
    sys.exit(main())
