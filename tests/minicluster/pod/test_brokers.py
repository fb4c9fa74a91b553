"""What the broker of a pod is told of an archive: it begins with one only where nothing newer is in its statedir."""

from __future__ import annotations

from pathlib import Path

from headrace.minicluster.pod.brokers import archive_attributes


def test_an_instance_without_an_archive_is_told_of_none(tmp_path: Path) -> None:
    assert archive_attributes("", str(tmp_path)) == {}


def test_the_first_broker_begins_with_the_archive_and_one_that_follows_it_with_the_statedir(tmp_path: Path) -> None:
    path, statedir = tmp_path / "archive.tgz", tmp_path / "state"
    assert archive_attributes(str(path), str(statedir)) == {"content.dump": str(path)}
    path.touch()
    statedir.mkdir()
    assert archive_attributes(str(path), str(statedir)) == {"content.dump": str(path), "content.restore": str(path)}
    (statedir / "jobs").mkdir()
    assert archive_attributes(str(path), str(statedir)) == {"content.dump": str(path)}
