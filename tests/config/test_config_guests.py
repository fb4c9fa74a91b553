"""What keeps users whose jobs run as themselves from passing a run directory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.config.guests import closed_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that others can pass, unlike those above `tmp_path`."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_each_folder_on_the_way_counts_and_the_first_that_is_closed_is_told(folder: Path) -> None:
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    assert closed_folder(str(inner)) == closed_folder(str(inner / "not" / "there")) == ""
    inner.chmod(0o700)
    told = f"{inner} has mode 0700, and must be passable for all, such as with 0711"
    assert closed_folder(str(inner)) == closed_folder(str(inner / "not" / "there")) == told
    inner.parent.chmod(0o1640)
    assert closed_folder(str(inner)) == f"{inner.parent} has mode 1640, and must be passable for all, such as with 1651"
    inner.parent.chmod(0o750)
    assert closed_folder(str(inner)) == told


def test_a_link_leads_to_what_counts(folder: Path) -> None:
    (folder / "closed").mkdir(mode=0o700)
    (folder / "link").symlink_to("closed")
    assert closed_folder(str(folder / "link")).startswith(f"{folder}/closed has mode 0700")
