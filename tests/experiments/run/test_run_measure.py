"""Metrics and checks of a run, from its files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.experiments.run.measure import check, measure
from headrace.experiments.run.search import Searcher, SearchError
from headrace.experiments.values import Check, Metric


@pytest.fixture(scope="module")
def searcher() -> Iterator[Searcher]:
    one = Searcher(cpu_seconds=1)
    yield one
    one.close()


def metric(**fields: object) -> Metric:
    return Metric(name="m", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "wanted", "value"),
    [
        ("Loop time of 1.5 on\nLoop time of 2.5e-1 on\n", {"regex": r"^Loop time of (\S+)"}, 0.25),
        ("7\n", {"regex": r"\d+"}, 7.0),
        ('{"a": {"b": [1, 2.5]}}', {"json": "a.b.1"}, 2.5),
        ('started\n{"rate": 3}\n{"rate": 4}\nended\n', {"json": "rate"}, 4.0),
    ],
)
def test_the_last_match_counts(
    tmp_path: Path, searcher: Searcher, text: str, wanted: dict[str, str], value: float
) -> None:
    (tmp_path / "stdout").write_text(text)
    assert measure((metric(**wanted),), tmp_path, searcher) == ({"m": value}, [])


@pytest.mark.parametrize(
    ("text", "wanted", "why"),
    [
        ("none\n", {"regex": "time (.*)"}, "metric m: no match of 'time (.*)' in stdout"),
        ("time x\n", {"regex": "time (.*)"}, "metric m: the match of 'time (.*)' in stdout is not a number: 'x'"),
        ("time nan\n", {"regex": "time (.*)"}, "metric m: the match of 'time (.*)' in stdout is not a number: 'nan'"),
        ('{"a": 1}', {"json": "b"}, "metric m: no b in the JSON of stdout"),
        ('{"a": true}', {"json": "a"}, "metric m: a in stdout is not a number: 'True'"),
        ("[" * 100_000, {"json": "b"}, "metric m: stdout has no JSON"),
        ("", {"regex": "x", "source": "log.txt"}, "metric m: the run left no file log.txt"),
    ],
)
def test_a_missing_metric_is_named_with_its_reason(
    tmp_path: Path, searcher: Searcher, text: str, wanted: dict[str, str], why: str
) -> None:
    (tmp_path / "stdout").write_text(text)
    assert measure((metric(**wanted),), tmp_path, searcher) == ({}, [why])
    assert measure((metric(**wanted, required=False),), tmp_path, searcher) == ({}, [])


def test_an_expression_that_blows_up_is_ended_and_the_next_one_works(tmp_path: Path, searcher: Searcher) -> None:
    (tmp_path / "stdout").write_text("a" * 60 + "b\n")
    with pytest.raises(SearchError, match="took more than 1 s of CPU time"):
        searcher.last(r"(a+)+$", tmp_path / "stdout")
    assert searcher.last("(a)b", tmp_path / "stdout") == "a"


def test_a_check_compares_the_exit_code_and_the_output(tmp_path: Path, searcher: Searcher) -> None:
    (tmp_path / "stdout").write_text("result: PASSED\n")
    assert check(Check(), 0, tmp_path, searcher) == ""
    assert check(Check(exit=3), 3, tmp_path, searcher) == ""
    assert check(Check(), 9, tmp_path, searcher) == "exit 9"
    assert check(Check(exit=3), 0, tmp_path, searcher) == "exit 0 instead of 3"
    assert check(Check(regex="PASSED$"), 0, tmp_path, searcher) == ""
    assert check(Check(regex="FAILED"), 0, tmp_path, searcher) == "check: no match of 'FAILED' in stdout"
