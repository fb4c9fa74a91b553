"""What is shown of jobs that are followed."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.cli.common.follower import Follower, Wanted, _Job
from scripted import Answers


@pytest.mark.parametrize(
    ("label", "context", "shown"),
    [
        (False, {"data": "a\n", "repeat": 3}, "a\na\na\n"),
        (True, {"data": "a\n", "repeat": 2}, "ƒ3z: 0-1: a\nƒ3z: 0-1: a\n"),
        (True, {"data": "10%\r20%\x0c\u2028\r\nb"}, "ƒ3z: 0-1: 10%\r20%\x0c\u2028\r\nƒ3z: 0-1: b"),
        (True, {"data": "/w0K", "encoding": "base64"}, "ƒ3z: 0-1: \udcff\r\n"),
        (True, {"eof": True}, ""),
    ],
)
def test_output_is_labelled_by_line_and_as_often_as_it_came(label: bool, context: dict[str, Any], shown: str) -> None:
    out, err = StringIO(newline=""), StringIO()
    job = _Job(173, Wanted(output=True, labels=label), out, err)
    event = SimpleNamespace(name="data", timestamp=0.0, context={"stream": "stdout", "rank": "0-1", **context})
    assert not Follower(Answers({}))._output(job, event)
    assert (out.getvalue(), err.getvalue()) == (shown, "")
