"""Experiments below the service's folder: found, read again when something changed, and nothing outside is read."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.experiments.store import status
from headrace.experiments.store.folder import REPORT, Folder, FolderError, Known
from headrace.service import experiments
from headrace.service.experiments import Experiments, NoExperiments, NoSuchExperiment
from headrace.service.people import AdminsOnly
from headrace.service.users import credential
from studies import study, valued

OWNER = credential.owner()


def listed(found: Experiments) -> list[tuple[str, str, int]]:
    return [(one.folder, one.status.state, one.status.done) for one in all_of(found).experiments]


def all_of(found: Experiments) -> experiments.Listing:
    return asyncio.run(found.listing(OWNER))


def test_experiments_are_listed_by_folder_and_damaged_ones_are_named(tmp_path: Path) -> None:
    (tmp_path / "group").mkdir()
    study(tmp_path, ended=0)
    study(tmp_path / "group", name="second one")
    study(tmp_path, name="z", ended=1)
    found = Experiments(str(tmp_path))
    assert listed(found) == [
        ("group/second one", "complete", 21),
        ("study", "interrupted", 0),
        ("z", "interrupted", 1),
    ]
    (tmp_path / "z" / "plan.json").write_text("{")
    done = all_of(found)
    assert [one.folder for one in done.experiments] == ["group/second one", "study"]
    assert len(done.problems) == 1 and "z/plan.json" in done.problems[0]
    # An experiment may be the folder itself.
    assert [one.folder for one in all_of(Experiments(str(tmp_path / "study"))).experiments] == ["study"]


def test_a_listing_reads_only_what_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = study(tmp_path, ended=1)
    study(tmp_path, name="other", ended=1)
    read: list[str] = []

    def counted(folder: Folder, known: Known) -> Any:
        read.append(folder.path.name)
        return status.read(folder, known)

    monkeypatch.setattr(experiments, "read", counted)
    found = Experiments(str(tmp_path))
    assert [done for _, _, done in listed(found)] == [1, 1]
    listed(found)
    assert sorted(read) == ["other", "study"]
    folder = Folder(path)
    run = folder.load()[1].runs[1]
    result = folder.results(folder.load()[1])[0]
    folder.begin(run)
    folder.commit(run, msgspec.structs.replace(result, cell=run.cell, number=run.number))
    assert [done for _, _, done in listed(found)] == [1, 2] and read[2:] == ["study"]


def test_only_what_was_found_has_a_name(tmp_path: Path) -> None:
    (top := tmp_path / "top").mkdir()
    study(top, ended=0)
    outside = study(tmp_path, name="outside", ended=0)
    (top / "link").symlink_to(outside)
    found = Experiments(str(top))
    for name in ("", ".", "..", "../outside", "study/../../outside", str(outside), "link", "study/", "./study", "s\0"):
        for asked in (found.one, found.report):
            with pytest.raises(NoSuchExperiment, match="there is no experiment"):
                asyncio.run(asked(OWNER, name))
    assert [one.folder for one in all_of(found).experiments] == ["study"]


@pytest.mark.parametrize("name", ["plan.json", "runs", "runs/lammps-1"])
def test_links_out_of_an_experiment_are_not_followed(tmp_path: Path, name: str) -> None:
    (top := tmp_path / "top").mkdir()
    path = study(top)
    outside = study(tmp_path, name="outside")
    os.rename(path / name, tmp_path / "moved")
    (path / name).symlink_to(outside / name)
    found = Experiments(str(top))
    assert "is a symbolic link" in all_of(found).problems[0] and listed(found) == []
    with pytest.raises(FolderError, match="is a symbolic link"):
        asyncio.run(found.one(OWNER, "study"))


def test_a_plan_whose_cells_lead_elsewhere_is_refused(tmp_path: Path) -> None:
    path = study(tmp_path, ended=0)
    plan: Any = msgspec.json.decode((path / "plan.json").read_bytes())
    plan["runs"][0]["cell"] = "../../outside"
    (path / "plan.json").write_bytes(msgspec.json.encode(plan))
    assert "the cell '../../outside' is not a name" in all_of(Experiments(str(tmp_path))).problems[0]


def test_a_report_is_a_file_of_its_own(tmp_path: Path) -> None:
    path = study(tmp_path, ended=0)
    found = Experiments(str(tmp_path))
    with pytest.raises(NoSuchExperiment, match="'study' has no report yet"):
        asyncio.run(found.report(OWNER, "study"))
    (path / REPORT).write_text("<p>")
    assert asyncio.run(found.report(OWNER, "study")) == b"<p>" and asyncio.run(found.one(OWNER, "study")).has_report
    (path / REPORT).unlink()
    (path / REPORT).symlink_to("/etc/passwd")
    with pytest.raises(FolderError, match=r"report\.html"):
        asyncio.run(found.report(OWNER, "study"))


def test_failed_runs_have_their_last_lines(tmp_path: Path) -> None:
    study(tmp_path, outcome=valued({}), ended=3, errors={("lammps-1", 1): b"one\ntwo\n"})
    found = asyncio.run(Experiments(str(tmp_path)).one(OWNER, "study"))
    assert found.status.failed == 3 and found.status.failures[0].cell == "lammps-1"
    assert found.last_lines == [["one", "two"], ["Loop time of 1.5"], ["Loop time of 1.5"]]


def test_experiments_are_for_administrators_where_there_are_any(tmp_path: Path) -> None:
    ann, boss = credential.user("ann", 1), credential.user("boss", 2, admin=True)
    found, none = Experiments(str(tmp_path)), Experiments("")
    assert [found.are_for(one) for one in (OWNER, boss, ann)] == [True, True, False] and not none.are_for(OWNER)
    with pytest.raises(AdminsOnly):
        asyncio.run(found.listing(ann))
    with pytest.raises(NoExperiments, match="headrace api start --experiments DIR"):
        asyncio.run(none.one(OWNER, "study"))
    with pytest.raises(FolderError, match="No such file"):
        asyncio.run(Experiments(str(tmp_path / "gone")).listing(OWNER))
