"""The comparison with recorded answers binds: whatever else a listed line answered would be found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recorded_rules import Rule, Rules, differences, read

RULES = read(Path(__file__).parent / "masks.toml")
LINES = [
    json.loads(line)
    for path in sorted((Path(__file__).parent.parent / "data" / "commands").glob("*.jsonl"))
    for line in path.read_text().splitlines()
]
LISTED = [line for line in LINES if line["command"] in RULES.differs]
TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nKeyError: 1\n'
HELP = {
    "rc": 0,
    "stdout": "",
    "stderr": "Usage: flux-x [OPTIONS] id\nDoes it.\n  -h, --help    Show this.\n  -s, --signal=SIG  Send SIG\n",
}


def as_expected(line: dict) -> dict:
    return {**line, **RULES.differs[line["command"]].ours}


@pytest.mark.parametrize("line", LISTED, ids=lambda line: line["command"][:50])
def test_any_other_answer_of_a_listed_line_is_found(line):
    rule = RULES.differs[line["command"]]
    good = as_expected(line)
    assert differences(line, good, RULES, rule) == []
    for bad in (
        {**good, "rc": 3},
        {**good, "rc": None},
        {**good, "stderr": good["stderr"] + TRACEBACK},
        {**good, "stdout": good["stdout"] + "one more line\n"},
        {**good, "stdout": "", "stderr": TRACEBACK, "rc": 1},
    ):
        assert differences(line, bad, RULES, rule), bad


def test_sentences_of_a_help_text_are_free_its_options_are_not():
    rules = Rules([], [], {})
    ours = HELP["stderr"].replace("Send SIG", "Choose the signal").replace("Does it.\n", "")
    assert differences(HELP, {**HELP, "stderr": ours}, rules, None) == []
    for wrong in (
        ours.replace("--signal=SIG", "--signal=N"),
        ours.replace("Choose the signal", ""),
        ours.replace("Usage: flux-x [OPTIONS] id", "Usage: flux-x id"),
        TRACEBACK,
        ours + TRACEBACK,
        "",
    ):
        assert differences(HELP, {**HELP, "stderr": wrong}, rules, None), wrong
    assert differences(HELP, {**HELP, "rc": 1}, rules, None)


def test_an_expected_answer_of_ours_is_not_cut_by_what_ours_has_more():
    rules = Rules([(r"\d+s", "TIME")], [("because.*", "")], {})
    line = {"rc": 0, "stdout": "waits 3s \n", "stderr": ""}
    assert differences(line, {**line, "stdout": "waits 4s because of X\n"}, rules, None) == []
    rule = Rule("c", "why", ours={"stdout": "waits 0s because of X\n"})
    assert differences(line, {**line, "stdout": "waits 9s because of X\n"}, rules, rule) == []
    assert differences(line, {**line, "stdout": "waits 9s because of Y\n"}, rules, rule)


@pytest.mark.parametrize(
    "text",
    [
        '[[mask]]\nwhy="w"\npattern="a"\nto="b"\n[[added]]\nwhy="w"\npattern="a"\nto="b"\n[[differs]]\ncommand="c"\n',
        'mask=[]\nadded=[]\n[[differs]]\nwhy="w"\ncommand="c"\nstdot="x"\n',
        "mask=[]\nadded=[]\nmasks=[]\ndiffers=[]\n",
        'mask=[]\nadded=[]\n[[differs]]\nwhy="w"\ncommand="c"\n[[differs]]\nwhy="w"\ncommand="c"\n',
    ],
)
def test_a_rule_that_would_be_ignored_is_refused(text, tmp_path):
    (tmp_path / "rules.toml").write_text(text)
    with pytest.raises(KeyError):
        read(tmp_path / "rules.toml")
