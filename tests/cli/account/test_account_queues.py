"""`flux account` about queues: each option is shown by its effect."""

from __future__ import annotations

import json
import re

import pytest

from accounting_databases import sqlite_first

DEFAULTS = {
    "queue": "x", "min_nodes_per_job": 1, "max_nodes_per_job": 1, "max_time_per_job": 60, "priority": 0,
    "max_running_jobs": 100, "max_nodes_per_assoc": "unlimited", "max_sched_jobs": "unlimited",
    "max_sched_nodes_per_assoc": "unlimited", "max_sched_cores_per_assoc": "unlimited", "max_nodes": "unlimited",
    "max_cores": "unlimited",
}  # fmt: skip
ADDED = [
    ("flux account add-queue x --min-nodes-per-job=2", {"min_nodes_per_job": 2}),
    ("flux account add-queue x --max-nodes-per-job=3", {"max_nodes_per_job": 3}),
    ("flux account add-queue x -N 4", {"max_nodes_per_job": 4}),
    ("flux account add-queue x --max-time-per-job=5", {"max_time_per_job": 5}),
    ("flux account add-queue x -t 6 -P 7", {"max_time_per_job": 6, "priority": 7}),
    ("flux account add-queue x --priority=-8", {"priority": -8}),
    ("flux account add-queue x --max-running-jobs=9", {"max_running_jobs": 9}),
    ("flux account add-queue x --max-nodes-per-assoc=10", {"max_nodes_per_assoc": 10}),
    ("flux account add-queue x --max-sched-jobs=11", {"max_sched_jobs": 11}),
    ("flux account add-queue x --max-sched-nodes-per-assoc=12", {"max_sched_nodes_per_assoc": 12}),
    ("flux account add-queue x -msn 13 -msc 14", {"max_sched_nodes_per_assoc": 13, "max_sched_cores_per_assoc": 14}),
    ("flux account add-queue x --max-sched-cores-per-assoc=15", {"max_sched_cores_per_assoc": 15}),
    ("flux account add-queue x --max-nodes=16 --max-cores=17", {"max_nodes": 16, "max_cores": 17}),
]


def queue(run, name="x"):
    return json.loads(run(f"flux account view-queue {name}").text)[0]


@sqlite_first
@pytest.mark.parametrize(("line", "changed"), ADDED, ids=[line for line, _ in ADDED])
def test_each_option_sets_its_column_in_a_new_queue(run, line: str, changed: dict[str, int]) -> None:
    assert run(line) == ("", 0)
    assert queue(run) == {**DEFAULTS, **changed}


EDITED = """
    flux account edit-queue x --min-nodes-per-job=2 --max-nodes-per-job=4 --max-time-per-job=6 --priority=-8
    flux account edit-queue x --max-running-jobs=9 --max-nodes-per-assoc=10 --max-sched-jobs=11 --max-nodes=16
    flux account edit-queue x --max-sched-nodes-per-assoc=12 --max-sched-cores-per-assoc=15 --max-cores=17
"""


def test_each_option_of_edit_queue_changes_its_column_and_resets_it(run) -> None:
    run("flux account add-queue x")
    for line in EDITED.split("\n"):
        before = queue(run)
        assert run(line) == ("", 0)
        given = {name.replace("-", "_"): int(value) for name, value in re.findall(r"--([a-z-]+)=(-?\d+)", line)}
        assert queue(run) == {**before, **given}
    resets = re.sub(r"=-?\d+", "=-1", EDITED)
    assert run(resets) == ("", 0)
    assert queue(run) == DEFAULTS
    run("flux account edit-queue x -N 2 -t 3 -P 4 -msn 5 -msc 6")
    assert [value for value in queue(run).values() if value in range(2, 7)] == [2, 3, 4, 5, 6]


@sqlite_first
@pytest.mark.parametrize(
    ("line", "text", "status"),
    [
        ("add-queue day", "add-queue: IntegrityError: queue day already exists in queue_table", 1),
        ("add-queue 'a,b'", "queue_table: queue: 'a,b' is not a name (without spaces and commas)", 1),
        ("add-queue x --max-nodes=-3", "queue_table: max_nodes: -3 is not a whole number from 0 to 2147483647", 1),
        ("add-queue x -N many", "argument -N/--max-nodes-per-job: invalid int value: 'many'", 2),
        ("edit-queue day --max-nodes=-2", "value must be a non-negative integer or -1 to reset to default", 1),
        ("edit-queue day --max-cores=2147483648", "queue_table: max_cores: 2147483648 is not a whole number", 1),
        ("edit-queue x --priority=1", "queue x not found in queue_table", 1),
        ("view-queue x", "view-queue: ValueError: queue x not found in queue_table", 1),
        ("delete-queue x", "queue x not found in queue_table", 1),
        ("list-queues --fields=x", "invalid fields: x", 1),
    ],
)
def test_what_is_wrong_is_refused(site, line: str, text: str, status: int) -> None:
    before = site("flux account list-queues").text
    told = site(f"flux account {line}")
    assert told.status == status
    assert text in told.text
    assert site("flux account list-queues").text == before


def test_queues_are_shown_in_each_form(site) -> None:
    assert (
        site("flux account view-queue day -o '{queue:<6}|{max_nodes}'").text == "queue |max_nodes\nday   |2147483647\n"
    )
    assert site("flux account view-queue day --format={queue}").text == "queue\nday\n"
    assert site("flux account view-queue day --parsable").text.splitlines()[2].startswith("day   | 1      ")
    assert site("flux account list-queues --fields=queue,max_cores").text == (
        "queue | max_cores\n------+----------\nday   | unlimited\nnight | unlimited\n"
    )
    assert json.loads(site("flux account list-queues --json --fields=queue").text) == [
        *({"queue": "day"}, {"queue": "night"})
    ]
    assert site("flux account list-queues --format={queue}").text == "queue\nday\nnight\n"


def test_the_deletion_of_a_queue_that_users_have_is_told(site) -> None:
    site("flux account edit-user ann --queues=day")
    assert site("flux account delete-queue night") == ("", 0)
    told = site("flux account delete-queue day")
    assert told.text.startswith("WARNING: user(s) in the association_table still reference this queue. ")
    assert told.status == 0
    assert site("flux account list-queues").status == 1
