"""Reports: numbers worked out by hand, the text of node-seconds, and sums that agree."""

from __future__ import annotations

from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.accounting.report import EndedJob, as_text, node_seconds, report, size_bins
from headrace.sched.accounting.tree import Bank, User, tree
from headrace.sched.accounting.usage import ResourceWeights


def job(user: str, bank: str, nodes: int, start: float, end: float, wait: float = 0.0) -> EndedJob:
    return EndedJob(user, bank, nodes, 2 * nodes, 0, start - wait, start, end)


JOBS = [
    job("ann", "A", 2, 0, 3600),
    job("ann", "A", 1, 100, 160),
    job("ann", "B", 8, 50, 60),
    job("bob", "B", 4, 1000, 1060),
    job("bob", "B", 4, 9000, 9999),
]

# Node-seconds


def test_node_seconds_are_summed_by_association_bank_or_user_most_first() -> None:
    assert node_seconds(JOBS, 0, 5000) == [("A:ann", [7260]), ("B:bob", [240]), ("B:ann", [80]), ("TOTAL", [7580])]
    assert node_seconds(JOBS, 0, 5000, "bybank") == [("A", [7260]), ("B", [320]), ("TOTAL", [7580])]
    assert node_seconds(JOBS, 0, 5000, "byuser") == [("ann", [7340]), ("bob", [240]), ("TOTAL", [7580])]
    assert node_seconds(JOBS, 61, 1060, "byuser") == [("bob", [240]), ("ann", [60]), ("TOTAL", [300])]


def test_jobs_are_grouped_by_their_nodes_and_those_below_the_smallest_are_left_out() -> None:
    found = node_seconds(JOBS, 0, 5000, "byuser", (2, 4, 8))
    assert found == [("ann", [7200, 0, 80]), ("bob", [0, 240, 0]), ("TOTAL", [7200, 240, 80])]


def test_the_text_has_the_columns_that_scripts_read() -> None:
    lines = node_seconds(JOBS, 0, 5000, "bybank")
    assert as_text(lines, "bybank", "min") == (
        "bank(nodemin)                     total\n"
        "A                                121.00\n"
        "B                                  5.33\n"
        "TOTAL                            126.33\n"
    )
    bins = (1, 4)
    assert as_text(node_seconds(JOBS, 0, 5000, bins=bins), bins=bins) == (
        "association(nodesec)                 1+             4+\n"
        "A:ann                           7260.00           0.00\n"
        "B:bob                              0.00         240.00\n"
        "B:ann                              0.00          80.00\n"
        "TOTAL                           7260.00         320.00\n"
    )
    assert as_text(node_seconds([], 0, 1, "byuser"), "byuser", "hour").splitlines() == [
        "user(nodehour)                    total",
        "TOTAL                              0.00",
    ]


def test_sizes_are_numbers_or_a_word_for_the_default() -> None:
    assert (size_bins(""), size_bins("1,4"), size_bins("default")[:3]) == ([0], [1, 4], [0, 2, 8])


# Shares and waits

BANKS = [Bank("root", "", 1), Bank("A", "root", 3), Bank("B", "root", 1), Bank("BB", "B", 1), Bank("BC", "B", 1)]
ROOT = tree(BANKS, [User("ann", "A", 1, 0.0), User("bob", "BB", 1, 0.0)])
NODES = ResourceWeights()


def test_banks_are_compared_with_their_shares_and_a_job_counts_for_its_time_within() -> None:
    jobs = [job("ann", "A", 2, 0, 100), job("bob", "BB", 3, 150, 1000), job("eve", "gone", 1, 110, 160)]
    found = report(ROOT, jobs, 50, 200, NODES)
    assert found.usage == 300
    assert [(bank.bank, bank.depth, bank.entitled, bank.usage, bank.jobs) for bank in found.banks] == [
        ("root", 0, 1.0, 250, 2),
        ("A", 1, 0.75, 100, 1),
        ("B", 1, 0.25, 150, 1),
        ("BB", 2, 0.125, 150, 1),
        ("BC", 2, 0.125, 0, 0),
        ("gone", 0, 0.0, 50, 1),
    ]
    assert found.banks[1].part == pytest.approx(1 / 3)
    assert [(user.username, user.usage) for user in found.users] == [("bob", 150), ("ann", 100), ("eve", 50)]
    assert len(report(ROOT, jobs, 50, 200, NODES, users=1).users) == 1


def test_weights_of_resources_are_those_of_accounting() -> None:
    assert report(ROOT, [job("ann", "A", 2, 0, 10)], 0, 10, ResourceWeights(0, 1, 0)).usage == 40


def test_waits_are_those_of_jobs_that_started_within() -> None:
    jobs = [job("ann", "A", 1, 10, 20, 5), job("ann", "A", 2, 30, 99, 7), job("bob", "BB", 3, 40, 50, 1)]
    found = report(ROOT, [*jobs, job("bob", "BB", 3, 0, 50, 1)], 10, 60, NODES)
    assert found.waits_by_bank == [("A", [5, 7]), ("BB", [1])]
    assert found.waits_by_size == [("1", [5]), ("2-3", [7, 1])]


def test_usage_over_time_is_in_equal_parts() -> None:
    found = report(ROOT, [job("ann", "A", 2, 5, 15), job("ann", "A", 1, 20, 25)], 0, 40, NODES, parts=4)
    assert found.edges == [0, 10, 20, 30, 40]
    assert found.over_time == [("A", [10, 10, 5, 0])]


def test_a_report_without_jobs_has_no_parts() -> None:
    found = report(ROOT, [], 0, 10, NODES)
    assert (found.usage, found.over_time, found.users, {bank.part for bank in found.banks}) == (0, [], [], {0.0})


@given(
    st.lists(
        st.tuples(st.sampled_from(["A", "BB", "BC"]), st.integers(1, 9), st.floats(0, 999), st.floats(0, 999)),
        max_size=20,
    ),
    st.integers(1, 70),
)
def test_all_sums_agree(given_jobs: list[tuple[str, int, float, float]], parts: int) -> None:
    jobs = [job("u", bank, nodes, start, start + length) for bank, nodes, start, length in given_jobs]
    found = report(ROOT, jobs, 100, 800, NODES, parts)
    assert found.banks[0].usage == pytest.approx(found.usage)
    assert fsum(user.usage for user in found.users) == pytest.approx(found.usage)
    assert fsum(value for _, series in found.over_time for value in series) == pytest.approx(found.usage)
    lines = node_seconds(jobs, 0, 2000, "bybank")
    assert fsum(line.usage[0] for line in lines[:-1]) == pytest.approx(lines[-1].usage[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: size_bins("1,x"), "job size bins: must be numbers separated by commas, not '1,x'"),
        (lambda: node_seconds([], 0, 1, "bycolour"), "report type: must be one of bybank, byuser, byassociation"),
        (lambda: as_text([], "bybank", "day"), "time unit: must be one of hour, min, sec, not 'day'"),
        (lambda: report(ROOT, [], 5, 5, NODES), "the end 5 must be after the start 5"),
    ],
)
def test_bad_questions_are_named(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
