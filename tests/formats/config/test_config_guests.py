"""What keeps users whose jobs run as themselves from passing a run directory."""

from __future__ import annotations

from pathlib import Path

from headrace.formats.config.guests import closed_folder


def test_each_folder_on_the_way_counts_and_the_first_that_is_closed_is_told(open_folder: Path) -> None:
    inner = open_folder / "a" / "b"
    inner.mkdir(parents=True)
    assert closed_folder(str(inner)) == closed_folder(str(inner / "not" / "there")) == ""
    inner.chmod(0o700)
    told = f"{inner} has mode 0700, and must be passable for all, such as with 0711"
    assert closed_folder(str(inner)) == closed_folder(str(inner / "not" / "there")) == told
    inner.parent.chmod(0o1640)
    assert closed_folder(str(inner)) == f"{inner.parent} has mode 1640, and must be passable for all, such as with 1651"
    inner.parent.chmod(0o750)
    assert closed_folder(str(inner)) == told


def test_a_link_leads_to_what_counts(open_folder: Path) -> None:
    (open_folder / "closed").mkdir(mode=0o700)
    (open_folder / "link").symlink_to("closed")
    assert closed_folder(str(open_folder / "link")).startswith(f"{open_folder}/closed has mode 0700")
