"""`make test`: runs pytest, then each failed test of real processes once more by itself, when nothing else runs.

    python tests/steady.py [PYTEST ARGUMENT]...

The tests of `tests/system` and `tests/kube` start brokers, pods and a Kubernetes, and share the machine with each other
and with whatever else it does. One that fails and then passes alone is unsteady: the end of the output lists it, it is
to be mended, and more than UNSTEADY of them fail the run. A test of any other folder has no second try.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TRIED_AGAIN = ("tests/system/", "tests/kube/")
# The most tests that may pass at their second try only.
UNSTEADY = 3
# With more failures than this the fault is not one of the machine, and a second run would only take time.
AGAIN = 12


class Failures:
    """A plugin that keeps the ids of the tests that failed, in the order in which they did."""

    def __init__(self) -> None:
        self.ids: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.ids[report.nodeid] = None


def may_pass_alone(failed: Iterable[str]) -> list[str]:
    """The failed tests that are run again: [] where one of them has no second try, or they are too many."""
    ids = list(failed)
    again = [each for each in ids if each.startswith(TRIED_AGAIN)]
    return again if len(again) == len(ids) <= AGAIN else []


def verdict(unsteady: list[str]) -> tuple[int, str]:
    """Exit status and closing words of a run whose failed tests have all passed alone."""
    listed = "".join(f"\n  {each}" for each in unsteady)
    if len(unsteady) > UNSTEADY:
        return 1, f"{len(unsteady)} tests are unsteady, more than {UNSTEADY}; each passed alone:{listed}"
    return 0, f"unsteady, to be mended (each failed beside other tests and passed alone):{listed}"


def main(arguments: list[str]) -> int:
    failures = Failures()
    status = int(pytest.main(arguments, plugins=[failures]))
    again = may_pass_alone(failures.ids)
    if status != pytest.ExitCode.TESTS_FAILED or not again:
        return status
    print(f"\n{len(again)} failed test(s) again, each by itself", flush=True)
    steady = True
    for each in again:
        done = subprocess.run([sys.executable, "-m", "pytest", "-n", "0", each], cwd=ROOT, check=False)
        steady = steady and done.returncode == 0
    if not steady:
        return status
    status, words = verdict(again)
    print(f"\n{words}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
