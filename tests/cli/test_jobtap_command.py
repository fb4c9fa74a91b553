"""`flux jobtap`: what its words become, and how an error reads."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from headrace.cli import jobtap
from headrace.cli.common.errors import CommandError

TOPIC = "job-manager.jobtap"


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (["load", "/lib/mf_priority.so"], {"load": "/lib/mf_priority.so"}),
        (["load", "-r", ".priority-default", "a.so"], {"load": "a.so", "remove": ".priority-default"}),
        (
            ["load", "a.so", 'config={"banks": []}', "x.y=1", "x.z=no", "w=a=b"],
            {"load": "a.so", "conf": {"config": {"banks": []}, "x": {"y": 1, "z": "no"}, "w": "a=b"}},
        ),
        (["remove", "all"], {"remove": "all"}),
    ],
)
def test_words_become_a_request(answers: Any, words: list[str], body: dict[str, Any]) -> None:
    handle = answers(jobtap, job_manager__jobtap=None)
    assert jobtap.main(words) == 0
    assert handle.asked == [(TOPIC, body)]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["load", "a.so", "x"], "Missing required value for key x"),
        (["load", "a.so", "x=1", "x.y=2"], "x.y=2: x has a value already"),
        (["load", "a.so"], "a.so not found"),
        (["remove", "a.so"], "a.so not found"),
    ],
)
def test_an_error_names_the_word(answers: Any, words: list[str], text: str) -> None:
    answers(jobtap, job_manager__jobtap=OSError(errno.ENOENT, "Failed to find plugin to remove"))
    with pytest.raises(CommandError) as caught:
        jobtap.main(words)
    assert caught.value.text == text


def test_lists_leave_out_what_is_built_in(answers: Any, capsys: Any) -> None:
    answers(jobtap, job_manager__jobtap={"plugins": [".priority-default", "mf_priority.so"]})
    jobtap.main(["list"])
    assert capsys.readouterr().out == "mf_priority.so\n"
    jobtap.main(["list", "-a"])
    assert capsys.readouterr().out == ".priority-default\nmf_priority.so\n"


def test_a_state_is_printed_as_json(answers: Any, capsys: Any) -> None:
    handle = answers(jobtap, job_manager__jobtap_query={"name": "a.so", "path": "/a.so"})
    jobtap.main(["query", "a.so"])
    assert capsys.readouterr().out == '{"name": "a.so", "path": "/a.so"}\n'
    assert handle.asked == [(f"{TOPIC}-query", {"name": "a.so"})]
