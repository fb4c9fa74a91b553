"""The tree of brokers as it is drawn, where some do not answer."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from headrace.cli import overlay as overlay_status
from headrace.cli.common.errors import CommandError


def shape(rank: int, *below: Any) -> dict[str, Any]:
    return {"rank": rank, "children": list(below)}


def health(status: str, **children: str) -> dict[str, Any]:
    """`r3="lost"` is the child of rank 3."""
    below = [{"rank": int(name[1:]), "status": state, "duration": 90.0} for name, state in children.items()]
    return {"rank": 0, "status": status, "duration": 5.0, "children": below}


@pytest.fixture
def shown(answers: Any, capsys: Any) -> Any:
    """`shown(argv, answers of overlay.health)`: the lines for the tree 0 - 1 - (2, 3)."""

    def run(argv: list[str], *given: Any) -> list[str]:
        topology = shape(0, shape(1, shape(2), shape(3)))
        answers(overlay_status, {"hostlist": "n[0-3]", "overlay.topology": topology, "overlay.health": list(given)})
        assert overlay_status.status(argv) == 0
        return str(capsys.readouterr().out).splitlines()

    return run


def test_a_broker_that_does_not_answer_is_shown_with_the_reason_and_its_children_as_ghosts(shown: Any) -> None:
    late = TimeoutError(errno.ETIMEDOUT, "")
    lines = shown([], health("degraded", r1="torpid"), late)
    assert lines == [
        "0 n0: degraded",
        "└─ 1 n1: torpid Connection timed out",
        "   ├─ 2 n2: torpid",
        "   └─ 3 n3: torpid",
    ]


def test_nobody_below_a_lost_one_is_asked(shown: Any) -> None:
    lines = shown(["-v", "--no-pretty"], health("degraded", r1="lost"), AssertionError)
    assert lines == ["0 n0: degraded for 5s", "1 n1: lost for 1.5m", "2 n2: lost", "3 n3: lost"]
    assert shown(["--no-ghost", "--down"], health("degraded", r1="lost"))[1:] == ["└─ 1 n1: lost"]


def test_a_root_that_does_not_answer_is_an_error(shown: Any) -> None:
    with pytest.raises(TimeoutError, match="timed out"):
        shown([], TimeoutError(errno.ETIMEDOUT, "x"))


def test_a_wait_goes_on_while_nobody_answers(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay_status, "_POLL", 0.0)
    late = TimeoutError(errno.ETIMEDOUT, "")
    assert shown(["--summary", "-w", "full"], health("partial"), late, health("full")) == ["full"]


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-t", "soon"], "invalid timeout: invalid duration 'soon'"),
        (["-t", "-1"], "invalid timeout"),
        (["-w", "well"], "invalid --wait state 'well': use full, partial, offline, degraded, lost"),
        (["--verbose=x"], "--verbose: invalid level 'x': it must be a number"),
        (["-r", "x"], "requires an integer argument, got 'x'"),
    ],
)
def test_what_an_option_cannot_be_is_said(shown: Any, argv: list[str], text: str) -> None:
    with pytest.raises(CommandError, match=text):
        shown(argv, health("full"))


@pytest.mark.parametrize(
    ("argv", "level"), [([], 0), (["-v"], 1), (["-vv"], 2), (["-v", "-v"], 2), (["--verbose=2"], 2)]
)
def test_detail_is_a_number_or_so_many_letters(argv: list[str], level: int) -> None:
    assert overlay_status._verbosity(overlay_status._STATUS.parse(argv)) == level


@pytest.mark.parametrize(("seconds", "text"), [(0.25, "0.25s"), (60.0, "1m"), (5400.0, "1.5h"), (864000.0, "10d")])
def test_an_age_has_the_largest_unit_that_fits(seconds: float, text: str) -> None:
    assert overlay_status._duration(seconds) == text
