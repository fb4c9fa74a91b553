"""No file imports itself by way of others, not even for types: a file can be read after those that it imports."""

from __future__ import annotations

import grimp
from graphlib import CycleError, TopologicalSorter


def circle(imports: dict[str, set[str]]) -> list[str]:
    """A circle of imports, [] where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as exc:
        return list(exc.args[1])
    return []


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph("headrace", cache_dir=None)
    assert circle({one: graph.find_modules_directly_imported_by(one) for one in graph.modules}) == []
