"""Numbers that no calendar, no C integer and no 64 bits hold: refused by name, and nobody else notices."""

from __future__ import annotations

from pathlib import Path

import pytest
from instance import start

HUGE = "1000000000000000000000000000000"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("submit --begin-time=+1e300 true", "is after the year 9999"),
        (f"run -n {HUGE} true", f"resources[0].count: must be 2147483647 at most, not {HUGE}"),
        (f"run --setattr=user.big={HUGE} true", "jobspec has a whole number of more than 64 bits"),
        ("submit --dependency=afterok:0 true", "dependency: afterok: job not found: 0"),
        (f"job memo $(flux submit sleep 60) n={HUGE}", "memo: has a whole number of more than 64 bits"),
    ],
)
def test_a_number_that_is_too_large_is_refused(line: str, says: str) -> None:
    done = start("sh", "-c", f"flux {line}; echo $?; flux run echo fine; flux jobs -a >/dev/null && echo listed")
    assert done.out.split()[-3:] == ["1", "fine", "listed"]
    assert says in done.err


def test_a_job_of_more_cores_than_there_are_numbers_is_listed() -> None:
    done = start(
        "sh", "-c", "flux submit -n 2147483647 -c 2147483647 true; flux jobs -a -no '{ntasks} {status_abbrev}'"
    )
    assert done.out.splitlines()[-1] == "2147483647 F"


def test_a_time_limit_beyond_all_planning_is_none() -> None:
    done = start(
        "sh", "-c", "flux run -t 1e300 echo run; flux update $(flux submit sleep 60) duration=1e299; flux run echo on"
    )
    assert done.out.split() == ["run", "on"]


def test_a_folder_without_state_is_not_recovered(tmp_path: Path) -> None:
    done = start(f"--recovery={tmp_path}", "true")
    assert done.rc == 1
    assert "has no state of an instance" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "kvs.sqlite").write_text("junk")
    done = start(f"-Sstatedir={tmp_path}", "true")
    assert done.rc != 0
    assert f"{tmp_path}/kvs.sqlite cannot be used" in done.err
