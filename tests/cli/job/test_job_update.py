"""`flux update`: the keys and values of an update, as they are sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.job import update


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("duration=1h", {"attributes.system.duration": 3600.0}),
        ("attributes.system.duration=1h", {"attributes.system.duration": 3600.0}),
        ("duration=inf", {"attributes.system.duration": 0.0}),
        ("name=x", {"attributes.system.job.name": "x"}),
        ("queue=debug", {"attributes.system.queue": "debug"}),
        ("attributes.user.a=[1]", {"attributes.user.a": [1]}),
        ("resources.0=1", {"resources.0": 1}),
        ("tasks.0.command=a=b", {"tasks.0.command": "a=b"}),
    ],
)
def test_keys_in_short_are_those_of_the_jobspec(
    given: str, sent: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert update.main(["--dry-run", "f1", given]) == 0
    assert json.loads(capsys.readouterr().out) == sent


@pytest.mark.parametrize(("duration", "changed"), [("+30", 90.0), ("-30s", 30.0), ("+inf", 0.0), ("+1m", 120.0)])
def test_a_time_limit_is_changed_by_an_amount(
    duration: str, changed: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(update, "_present_duration", lambda job: 60.0)
    assert update.main(["--dry-run", "f1", f"duration={duration}"]) == 0
    assert json.loads(capsys.readouterr().out) == {"attributes.system.duration": changed}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("duration=+-5", "invalid Flux standard duration"),
        ("duration=-60", "would leave a time limit of 0.0 s"),
        ("duration=x", "invalid Flux standard duration: x"),
        ("duration", "use KEY=VALUE"),
    ],
)
def test_what_cannot_be_is_refused(given: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "_present_duration", lambda job: 60.0)
    with pytest.raises(CommandError, match=says.replace("+", "[+]")):
        update.main(["--dry-run", "f1", given])


def test_a_job_without_a_time_limit_has_none_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "_present_duration", lambda job: 0.0)
    with pytest.raises(CommandError, match="the job has no time limit"):
        update.main(["f1", "duration=+5"])
