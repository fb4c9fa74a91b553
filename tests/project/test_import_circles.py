"""No file imports itself by way of others, not even for types: a file can be read after those that it imports."""

from __future__ import annotations

import grimp
import pytest
from graphlib import CycleError, TopologicalSorter

from headrace.wire.client.installation import BINDINGS


def circle(imports: dict[str, set[str]]) -> list[str]:
    """A circle of imports, [] where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as exc:
        return list(exc.args[1])
    return []


def imports_of(graph: grimp.ImportGraph) -> dict[str, set[str]]:
    return {one: graph.find_modules_directly_imported_by(one) for one in graph.modules}


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circle(imports_of(grimp.build_graph("headrace", cache_dir=None))) == []


def test_no_files_of_the_bindings_do_when_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which names a file of package `flux` has is Flux's choice, so types may go both ways: all take a handle."""
    monkeypatch.syspath_prepend(BINDINGS)
    assert circle(imports_of(grimp.build_graph("flux", cache_dir=None, exclude_type_checking_imports=True))) == []
