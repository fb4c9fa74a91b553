"""The trace of starts that were handed out ahead."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.agent import begun
from headrace.agent.deputies import MOST


def test_another_process_reads_what_was_added(tmp_path: Path) -> None:
    path = str(tmp_path / "begun")
    assert begun.read(path) == frozenset()
    begun.reserve(path)
    assert begun.read(path) == frozenset()
    traces = begun.Traces(path)
    for id in (1, 2**64 - 1, 77):
        traces.add(id)
    begun.reserve(path)
    assert begun.read(path) == {1, 2**64 - 1, 77}
    assert Path(path).stat().st_mode & 0o777 == 0o600
    begun.clear(path)
    assert begun.read(path) == frozenset()
    traces.add(5)
    assert begun.read(path) == {5}


def test_the_latest_are_kept_however_many_there_were(tmp_path: Path) -> None:
    path = str(tmp_path / "begun")
    begun.reserve(path)
    traces = begun.Traces(path)
    for id in range(1, 10_001):
        traces.add(id)
    kept = begun.read(path)
    assert kept >= set(range(9_001, 10_001)) and min(kept) > 1


def test_a_file_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "begun"
    path.write_bytes((7).to_bytes(8, "little") + b"\1\2")
    assert begun.read(str(path)) == {7}
    with pytest.raises(ValueError):
        begun.Traces(str(path))


def test_each_deputy_has_a_ring_of_its_own(tmp_path: Path) -> None:
    path = str(tmp_path / "begun")
    begun.reserve(path)
    for ring in range(MOST + 1):
        traces = begun.Traces(path, ring)
        for id in range(5000):
            traces.add(ring * 10_000 + id + 1)
    for ring in range(MOST + 1):
        assert sum(id // 10_000 == ring for id in begun.read(path)) >= 4096
