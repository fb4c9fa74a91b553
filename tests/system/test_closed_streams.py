"""Commands behave as with /dev/null where their caller closed a standard stream, and say so where they cannot write."""

from __future__ import annotations

import pytest
from instance import FLUX, start


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_command_with_closed_streams_does_its_work_and_ends(closed: str) -> None:
    done = start(
        "-s1",
        f"for i in run submit; do timeout 20 flux $i true {closed} || exit 2; done; "
        f"timeout 20 flux jobs {closed} || exit 3; "
        "flux queue drain; flux jobs -a -n -o '{name} {result}'",
    )
    assert done.rc == 0, done.err
    assert done.out.endswith("true COMPLETED\n" * 2)
    assert not done.left


def test_an_instance_starts_with_closed_streams() -> None:
    done = start("-s1", f"timeout 40 {FLUX} start -s2 flux run -N2 hostname <&-")
    assert (done.rc, len(done.out.splitlines())) == (0, 2), done.err
    assert not done.left


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_cannot_be_written_is_one_line_and_a_failure(unbuffered: str) -> None:
    commands = {
        "run echo hi": "flux-run: ERROR",
        "help": "flux",
        "jobs --help": "flux-jobs: ERROR",
        "jobs": "flux-jobs: ERROR",
        "job list -a": "flux-job",
        "getattr size": "flux-getattr",
        "queue list": "flux-queue: ERROR",
        "kvs put --blobref a=1": "flux-kvs",
    }
    lines = "".join(
        f"flux {command} >/dev/full; echo $?; flux {command} 2>/dev/full >&-; echo $?\n" for command in commands
    )
    done = start("-s1", f"export PYTHONUNBUFFERED={unbuffered}; {lines}")
    assert done.out.split() == ["1", "0"] * len(commands)
    for line, prefix in zip(done.err.splitlines(), commands.values(), strict=True):
        assert line.startswith(f"{prefix}: ")
        assert line.endswith("No space left on device")


def test_an_error_that_nobody_can_be_told_of_keeps_its_status() -> None:
    done = start("-s1", "flux getattr nosuch 2>/dev/full; echo $?; flux run false 2>/dev/full; echo $?")
    assert (done.out, done.err) == ("1\n1\n", "")
