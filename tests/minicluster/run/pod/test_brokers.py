"""What the broker of a pod is told: how long it waits at its end, and that it begins with an archive only where nothing
newer is in its statedir."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from pods import told

from headrace.minicluster.run.pod.brokers import archive_attributes, attributes
from headrace.minicluster.run.pod.place import find_place


@pytest.mark.parametrize(("host", "exit_code"), [("c-0", None), ("c-1", "75")])
def test_a_broker_waits_for_those_below_it_as_long_as_its_pod_has(host: str, exit_code: str | None) -> None:
    plan = told({})
    attrs = attributes(plan, find_place(plan, {}, host), statedir=False)
    assert attrs["broker.shutdown-timeout"] == "20s"
    assert attrs.get("broker.exit-restart") == exit_code
    given = replace(plan, attrs={**plan.attrs, "broker.shutdown-timeout": "5s"})
    assert attributes(given, find_place(given, {}, host), statedir=False)["broker.shutdown-timeout"] == "5s"


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
