"""`-o signal`: what may be asked for."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.shell.warning import Warn, parse


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        (None, None),
        (0, None),
        (1, Warn(10, 60.0)),
        ({}, Warn(10, 60.0)),
        ({"signum": 12}, Warn(12, 60.0)),
        ({"timeleft": 0}, None),
        ({"timeleft": "2m"}, Warn(10, 120.0)),
        ({"signum": 15, "timeleft": 0.3}, Warn(15, 0.3)),
        ("USR2@0.3", Warn(12, 0.3)),
        ("@5m", Warn(10, 300.0)),
    ],
)
def test_every_form_of_the_option_is_understood(option: Any, wanted: Warn | None) -> None:
    assert parse(option) == wanted


@pytest.mark.parametrize("option", ["USR9@1s", "USR1@soon", {"signum": 0}, {"signum": "USR1"}, {"timeleft": []}, [10]])
def test_what_makes_no_sense_is_refused(option: Any) -> None:
    with pytest.raises(ValueError, match="signal"):
        parse(option)
