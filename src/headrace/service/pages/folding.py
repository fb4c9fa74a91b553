"""Equal jobs of one submission as one row of a listing. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.service.pages.view import Row

# The fewest jobs that are folded, and the most that an opened row shows.
FEWEST = 3
MOST_SHOWN = 200
# Seconds within which the jobs of one submission come.
_TOGETHER = 60.0
_EQUAL = ("name", "userid", "queue", "ntasks", "nnodes", "duration", "urgency", "state", "result")


class Entry(NamedTuple):
    """A row of the listing: one job, or several equal ones, which is shown as the first of them."""

    rows: list[Row]
    is_open: bool = False

    @property
    def ids(self) -> list[str]:
        return [row.plain_id for row in self.rows]


def fold(jobs: Iterable[tuple[dict[str, Any], Row]]) -> list[Entry]:
    """The entries of these jobs, as job-list describes them and as they are shown, in the order of their first jobs."""
    groups: list[list[Row]] = []
    # By what jobs of a submission have in common: when the first was submitted, and the group.
    known: dict[tuple[Any, ...], tuple[float, list[Row]]] = {}
    for raw, row in jobs:
        key = tuple(raw.get(name) for name in _EQUAL)
        begin, group = known.get(key, (raw["t_submit"], None))
        if group is None or abs(raw["t_submit"] - begin) > _TOGETHER:
            group = []
            known[key] = (raw["t_submit"], group)
            groups.append(group)
        group.append(row)
    return [
        entry
        for group in groups
        for entry in ([Entry(group)] if len(group) >= FEWEST else [Entry([row]) for row in group])
    ]


def opened(entries: Iterable[Entry], id: str) -> list[Entry]:
    """The entries, where that of several jobs with this id (Row.plain_id) is followed by these jobs."""
    found = []
    for entry in entries:
        if len(entry.rows) > 1 and id in entry.ids:
            found += [entry._replace(is_open=True), *(Entry([row]) for row in entry.rows[:MOST_SHOWN])]
        else:
            found.append(entry)
    return found
