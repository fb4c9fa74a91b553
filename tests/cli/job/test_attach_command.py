"""What `flux job attach` asks for; the following itself is in attach."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.job import attach_command


def test_options_say_how_a_job_is_followed(answers: Any, monkeypatch: Any, capsys: Any) -> None:
    told: dict[str, Any] = {}

    def attach(_handle: Any, job: int, **options: Any) -> Any:
        told.update(options, job=job)
        return SimpleNamespace(run=lambda: 7)

    answers(attach_command)
    monkeypatch.setattr(attach_command, "Attach", attach)
    assert attach_command.attach(["f2"]) == 7
    assert (told["job"], told["wait_event"], told["stdin_ranks"], told["tail"]) == (1, "finish", "all", None)
    assert not any(told[name] for name in ("label", "show_events", "show_exec", "read_only", "quiet", "show_status"))
    assert attach_command.attach(["-vlEXr", "--wait-event=clean", "f2"]) == 7
    assert all(told[name] for name in ("label", "show_events", "show_exec", "read_only"))
    assert told["wait_event"] == "clean"
    assert capsys.readouterr().err == "jobid: ƒ2\n"


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-r", "-i", "0", "f2"], "Do not use --stdin-ranks with --read-only"),
        (["--tail=many", "f2"], "--tail: not a number of lines: many"),
    ],
)
def test_what_contradicts_itself_or_is_no_number_is_refused(answers: Any, argv: list[str], text: str) -> None:
    answers(attach_command)
    with pytest.raises(CommandError) as refused:
        attach_command.attach(argv)
    assert refused.value.text == text
