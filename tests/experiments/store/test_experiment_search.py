from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.experiments.store.search import folders
from studies import study


def test_experiments_are_found_at_some_depth_but_not_in_experiments_or_by_links(tmp_path: Path) -> None:
    (top := tmp_path / "top").mkdir()
    (deep := top / "b" / "c" / "d").mkdir(parents=True)
    (too_deep := deep / "e").mkdir()
    study(top, name="a", ended=0)
    study(deep, name="x", ended=0)
    study(too_deep, name="y", ended=0)
    study(top / "a", name="inner", ended=0)
    (outside := tmp_path / "outside").mkdir()
    study(outside, ended=0)
    (top / "link").symlink_to(outside)
    (hidden := top / ".hidden").mkdir()
    study(hidden, ended=0)
    assert [os.path.relpath(one, top) for one in folders(str(top))] == ["a", "b/c/d/x"]
    assert list(folders(str(top / "a"))) == [str(top / "a")]
    with pytest.raises(FileNotFoundError):
        list(folders(str(tmp_path / "none")))
