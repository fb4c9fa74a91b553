"""The constraint operators of RFC 43, one by one and against plain set logic."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.modules.job_list.match import ALL_STATES, MatchError, compiled
from headrace.engine.modules.job_list.record import Job


def job(**values: Any) -> Job:
    made = Job(1)
    made.userid = 42
    for name, value in values.items():
        setattr(made, name, value)
    return made


def matches(constraint: Any, **values: Any) -> bool:
    made = job(**values)
    match = compiled(constraint)
    return (match.test is None or match.test(made)) and bool(match.states & made.state)


@pytest.mark.parametrize(
    ("constraint", "values", "expected"),
    [
        ({"userid": [42, 43]}, {}, True),
        ({"userid": [43]}, {}, False),
        ({"userid": [-1]}, {}, True),
        ({"name": ["a", "b"]}, {"name": "b"}, True),
        ({"not": [{"queue": ["foobar"]}]}, {"queue": "foobar"}, False),
        ({"not": [{"queue": ["foobar"]}]}, {}, True),
        ({"states": ["depend", "priority", "SCHED"]}, {"state": 8}, True),
        ({"states": [126]}, {"state": 64}, True),
        ({"states": ["running"]}, {"state": 8}, False),
        ({"results": [1, "failed"]}, {"state": 64, "result": 2}, True),
        ({"results": ["canceled"]}, {"state": 64, "result": 2}, False),
        ({"results": [1]}, {"state": 16}, False),
        ({"hostlist": ["node[1-2]"]}, {"nodelist": "node[2-9]"}, True),
        ({"hostlist": ["node1"]}, {"nodelist": "node2"}, False),
        ({"hostlist": ["node1"]}, {}, False),
        ({"ranks": ["0-1", "7"]}, {"ranks": "7-9"}, True),
        ({"ranks": ["0"]}, {}, False),
        ({"t_run": [">=5.0"]}, {"t_run": 5.0}, True),
        ({"t_run": ["<5.0"]}, {"t_run": 5.0}, False),
        ({"t_run": ["<5.0"]}, {}, False),
        ({"and": [{"userid": [42]}, {"t_submit": [">946713600.0"]}]}, {"t_submit": 1e9}, True),
        ({"or": [{"userid": [1]}, {"name": ["x"]}]}, {"name": "x"}, True),
        ({}, {}, True),
        (None, {}, True),
        ({"and": []}, {}, True),
        ({"or": []}, {}, True),
        ({"not": []}, {}, False),
    ],
)
def test_operators(constraint: Any, values: dict[str, Any], expected: bool) -> None:
    assert matches(constraint, **values) is expected


@pytest.mark.parametrize(
    "constraint",
    [
        {"userid": ["root"]},
        {"userid": 0},
        {"name": [1]},
        {"states": ["nosuch"]},
        {"states": [-1]},
        {"results": [1.5]},
        {"hostlist": ["a["]},
        {"ranks": ["x"]},
        {"t_run": ["5.0"]},
        {"t_run": [">later"]},
        {"t_run": [">-1"]},
        {"t_run": []},
        {"nosuch": []},
        [],
        "x",
        {"and": [1]},
    ],
)
def test_wrong_constraints_are_refused(constraint: Any) -> None:
    with pytest.raises(MatchError):
        compiled(constraint)


def test_deep_constraints_are_refused_before_they_hurt() -> None:
    deep: Any = {"userid": [1]}
    for _ in range(5000):
        deep = {"not": [deep]}
    with pytest.raises(MatchError, match="nested"):
        compiled(deep)


@pytest.mark.parametrize(
    ("part", "most", "what"),
    [
        ({"name": ["x"]}, 332, "operators and values specified: at most 1000"),
        ({"ranks": ["16777215"]}, 1, "ranks specified: at most 16777216"),
        ({"hostlist": ["node[1-1024]"]}, 4, "hosts specified: at most 4096"),
    ],
)
def test_a_constraint_has_room_for_so_much(part: Any, most: int, what: str) -> None:
    compiled({"or": [part] * most})
    with pytest.raises(MatchError, match=f"too many {what}"):
        compiled({"or": [part] * (most + 2)})
    with pytest.raises(MatchError, match=f"too many {what}"):
        compiled({"and": [{"not": [part]}, {"or": [part] * (most + 1)}]})


def test_a_listing_of_active_jobs_never_looks_at_finished_ones() -> None:
    assert not compiled({"and": [{"userid": [0]}, {"states": [62]}]}).states & 64
    assert compiled({"and": [{"userid": [0]}, {"results": [1]}]}).states == 64
    assert compiled({"or": [{"states": ["run"]}, {"results": [1]}]}).states == 16 | 64
    assert compiled({"not": [{"states": ["run"]}]}).states == ALL_STATES


LEAVES = st.sampled_from(
    [{"userid": [42]}, {"userid": [7]}, {"name": ["a"]}, {"states": [8]}, {"states": ["run", "inactive"]}]
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.builds(lambda op, parts: {op: parts}, st.sampled_from(["and", "or", "not"]), st.lists(inner)),
)


def plainly(constraint: Any, made: Job) -> bool:
    (op, values), *_ = constraint.items()
    if op == "userid":
        return made.userid in values
    if op == "name":
        return made.name in values
    if op == "states":
        return bool(made.state & {8: 8, "run": 16}.get(values[0], 0)) or (len(values) > 1 and made.state == 64)
    parts = [plainly(value, made) for value in values]
    if op == "and":
        return all(parts)
    return not all(parts) if op == "not" else any(parts) or not parts


@given(TREES, st.sampled_from([8, 16, 64]), st.sampled_from(["a", "b"]))
def test_any_tree_of_operators_means_what_it_says(constraint: Any, state: int, name: str) -> None:
    assert matches(constraint, state=state, name=name) is plainly(constraint, job(state=state, name=name))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["and", "ranks", "t_run", "x"]), inner),
)


@given(JSON)
def test_any_json_compiles_or_is_refused(constraint: Any) -> None:
    try:
        compiled(constraint)
    except MatchError:
        pass
