"""Jobspec texts: YAML and JSON alike, and short texts that would cost much are refused."""

from __future__ import annotations

import json

import pytest
import yaml

from headrace.sched.graph import Graph
from headrace.sched.graph.jobspec_text import ERRORS, read
from headrace.sched.graph.request import RequestError

SLOT = {"type": "slot", "count": 2, "label": "t", "with": [{"type": "core", "count": 3}]}
JOBSPEC = {"version": 1, "resources": [SLOT], "attributes": {"system": {"duration": 60}}, "tasks": []}


def graph() -> Graph:
    found = Graph()
    found.add("core", found.add("cluster", id=0), id=0)
    return found.finish()


def test_yaml_and_json_are_the_same_request() -> None:
    for text in (json.dumps(JOBSPEC), "\n " + json.dumps(JOBSPEC), yaml.safe_dump(JOBSPEC)):
        request = read(text, graph())
        (slot,) = request.resources
        (core,) = slot.with_
        assert (slot.type, slot.count.low, core.type, core.count.low, request.duration) == ("slot", 2, "core", 3, 60)


def test_flow_style_that_is_no_json_is_yaml() -> None:
    text = "{resources: [{type: slot, count: 1, label: t, with: [{type: core, count: 1}]}]}"
    assert read(text, graph()).resources[0].type == "slot"


def test_a_number_of_thousands_of_digits_is_an_error_without_advice_about_python() -> None:
    with pytest.raises(RequestError, match=r"a value cannot be read: a number has thousands of digits$"):
        read(f"resources: {'9' * 5000}", graph())


def test_aliases_that_expand_to_too_much_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 8)]
    with pytest.raises(RequestError, match="more than 100000 values"):
        read("\n".join(lines), graph())


def test_yaml_that_would_take_seconds_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "load", lambda *_, **__: pytest.fail("it is read"))
    long = "x" * 2**20
    for text in (f"a: {long}", "{" + long):
        with pytest.raises(RequestError, match=f"YAML must have at most 1048576 characters, not {len(text)}"):
            read(text, graph())
    # JSON is read a hundred times as fast.
    assert read(json.dumps({**JOBSPEC, "name": long}), graph()).duration == 60


@pytest.mark.parametrize("text", ["", "[]", "resources: 1", "a: [", "a: b: c", "{", "[" * 100_000, "{a: " * 50_000])
def test_what_is_no_jobspec_is_an_error_of_the_listed_kinds(text: str) -> None:
    with pytest.raises(ERRORS):
        read(text, graph())
