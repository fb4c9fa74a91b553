"""The comparison with recorded objects tells each change, and a row of the table covers no other value than its own."""

from __future__ import annotations

from typing import Any

import pytest
from differences import ABSENT, Difference, Row, differences, matches


def found(theirs: Any, ours: Any, *expected: str) -> list[Difference]:
    return list(differences(theirs, ours, "Job", lambda one: one.path in expected))


def test_a_difference_is_told_as_deep_as_it_lies() -> None:
    theirs = {"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b"}], "size": 2}}
    ours = {"spec": {"containers": [{"name": "b", "tty": True}, {"name": "a", "image": "y"}], "size": 2}}
    assert found(theirs, ours) == [
        Difference("Job.spec.containers[a].image", '"x"', '"y"'),
        Difference("Job.spec.containers[b].tty", ABSENT, "true"),
    ]


def test_the_order_of_items_with_a_key_does_not_count_that_of_others_does() -> None:
    one, two = {"mountPath": "/a", "name": "v"}, {"mountPath": "/b", "name": "v"}
    assert found({"mounts": [one, two]}, {"mounts": [two, one]}) == []
    assert found({"command": ["a", "b"]}, {"command": ["b", "a"]}) != []


def test_an_expected_difference_is_told_as_a_whole() -> None:
    assert found({"spec": {"a": 1, "b": 2}}, {"spec": {}}, "Job.spec") == [
        Difference("Job.spec", '{"a": 1, "b": 2}', "{}")
    ]


ROW = Row("Job.containers[{container}].command", '["bash", "start-{i}.sh"]', '["run", "{i}", "{name}"]', "why")


@pytest.mark.parametrize(
    ("path", "theirs", "ours", "covered"),
    [
        ("Job.containers[web].command", '["bash", "start-1.sh"]', '["run", "1", "sample"]', True),
        ("Job.containers[web].command", '["bash", "start-1.sh"]', '["run", "2", "sample"]', False),
        ("Job.containers[web].command", '["bash", "start-1.sh"]', '["run", "1", "other"]', False),
        ("Job.containers[web].command", '["bash", "start-1.sh", "x"]', '["run", "1", "sample"]', False),
        ("Job.containers[web].args", '["bash", "start-1.sh"]', '["run", "1", "sample"]', False),
        ("Job.containers[web].command", ABSENT, '["run", "1", "sample"]', False),
    ],
)
def test_a_row_covers_its_own_values_only(path: str, theirs: str, ours: str, covered: bool) -> None:
    assert matches(ROW, Difference(path, theirs, ours), {"name": "sample"}, {}) is covered


def test_a_row_can_have_the_value_that_the_file_gives() -> None:
    row = Row("Job.securityContext.{field}", ABSENT, "spec.pod.{field}", "why")
    document = {"spec": {"pod": {"runAsUser": 7}}}
    assert matches(row, Difference("Job.securityContext.runAsUser", ABSENT, "7"), {}, document)
    assert not matches(row, Difference("Job.securityContext.runAsUser", ABSENT, "8"), {}, document)
    assert not matches(row, Difference("Job.securityContext.fsGroup", ABSENT, "7"), {}, document)


def test_an_ellipsis_is_any_value_but_its_neighbours_count() -> None:
    row = Row("Job.exec.command", '["{line}"]', '["…"]', "why")
    assert matches(row, Difference("Job.exec.command", '["a b"]', '["a", "b"]'), {}, {})
    assert not matches(row, Difference("Job.exec.command", '["a b"]', ABSENT), {}, {})
    assert not matches(row, Difference("Job.exec.command", '["a", "b"]', '["a b"]'), {}, {})
