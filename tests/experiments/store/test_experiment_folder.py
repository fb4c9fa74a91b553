"""The folder of an experiment: a run is kept whole or not at all, and one process writes at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from pathlib import Path

import pytest

from experiments.run.cells import cell, experiment, result
from headrace.experiments.store.folder import Folder, FolderError, Owner
from headrace.experiments.store.status import status
from headrace.experiments.values import Result, Run

FIRST = Run(cell="a", number=1)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "new" / "results")
    made.create(b"jobs: {}\n", *experiment(cell("a", 2), cell("b", 1)), {"version": 1})
    return made


def owner(pid: int = 1) -> Owner:
    return Owner(pid=pid, host="here", workspace="/tmp/x", token="t")


def test_an_experiment_and_its_plan_come_back(folder: Folder) -> None:
    assert folder.load() == experiment(cell("a", 2), cell("b", 1))
    assert (folder.path / "experiment.yaml").read_bytes() == b"jobs: {}\n"


def test_a_folder_without_a_plan_is_no_experiment(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="is not the folder of an experiment: it has no plan"):
        Folder(tmp_path).load()


def test_a_run_counts_when_it_is_committed_and_only_then(folder: Folder) -> None:
    _, plan = folder.load()
    record, work = folder.begin(FIRST)
    (record / "stdout").write_text("out")
    (work / "scratch").write_text("left")
    assert folder.results(plan) == [] and folder.running() == [FIRST]
    folder.commit(FIRST, result(FIRST, 0))
    assert folder.results(plan) == [result(FIRST, 0)] and folder.running() == []
    assert (folder.run_folder(FIRST) / "stdout").read_text() == "out"
    assert sorted(os.listdir(folder.path / "runs" / "a")) == ["1"]


def test_an_interrupted_run_is_removed(folder: Folder) -> None:
    folder.begin(FIRST)
    folder.abandon(FIRST)
    assert os.listdir(folder.path / "runs" / "a") == []


def test_results_that_are_known_are_not_read_again_unless_the_run_was_repeated(folder: Folder) -> None:
    _, plan = folder.load()
    known: dict[str, tuple[int, Result]] = {}

    def ran(reason: str) -> None:
        folder.begin(FIRST)
        folder.commit(FIRST, result(FIRST, 0, reason=reason))

    ran("first")
    for _ in range(2):
        assert [one.reason for one in folder.results(plan, known)] == ["first"]
    file = folder.run_folder(FIRST) / "result.json"
    file.write_bytes(file.read_bytes().replace(b"first", b"other"))
    assert [one.reason for one in folder.results(plan, known)] == ["first"]
    shutil.rmtree(file.parent)
    assert folder.results(plan, known) == []
    ran("second")
    assert [one.reason for one in folder.results(plan, known)] == ["second"]


def test_a_damaged_result_is_named(folder: Folder) -> None:
    folder.begin(FIRST)
    folder.commit(FIRST, result(FIRST, 0))
    (folder.run_folder(FIRST) / "result.json").write_text("{")
    with pytest.raises(FolderError, match=r"a/1/result.json: .*; delete .*/a/1 to run it again"):
        folder.results(folder.load()[1])


def test_a_second_process_is_refused_and_told_of_the_first(folder: Folder) -> None:
    with folder.locked(owner(41)) as former:
        assert former is None and folder.is_locked()
        with pytest.raises(FolderError, match="process 41 on here runs this experiment"), folder.locked(owner(42)):
            pass
    assert not folder.is_locked()


def test_the_next_owner_learns_of_one_that_was_killed(folder: Folder) -> None:
    with pytest.raises(RuntimeError), folder.locked(owner(41)):
        raise RuntimeError("killed")
    with folder.locked(owner(42)) as former:
        assert former == owner(41)
    with folder.locked(owner(43)) as former:
        assert former is None


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match=r"/file.*: Not a directory"):
        Folder(tmp_path / "file" / "results").create(b"", *experiment(cell()), {})


def test_a_status_counts_runs_by_cell(folder: Folder) -> None:
    assert status(folder).state == "interrupted"
    folder.begin(FIRST)
    folder.commit(FIRST, result(FIRST, 0, state="failed", reason="exit 3"))
    folder.begin(Run(cell="b", number=1))
    with folder.locked(owner()):
        found = status(folder)
    assert (found.state, found.planned, found.done, found.failed) == ("running", 3, 1, 1)
    assert [(one.cell, one.done, one.running) for one in found.cells] == [("a", 1, 0), ("b", 0, 1)]
    assert [one.reason for one in found.failures] == ["exit 3"]
    for run in (Run(cell="a", number=2), Run(cell="b", number=1)):
        folder.begin(run)
        folder.commit(run, result(run, 1))
    folder.add_session({"problems": []})
    folder.add_session({"problems": ["the budget is used up"]})
    assert (status(folder).state, status(folder).problems) == ("complete", ("the budget is used up",))


def test_a_look_at_the_lock_does_not_keep_a_run_from_taking_it(folder: Folder) -> None:
    with folder.locked(owner()):
        pass
    fd = os.open(folder.path / "lock", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    timer = threading.Timer(0.05, os.close, [fd])
    timer.start()
    with folder.locked(owner()):
        assert folder.is_locked()
    timer.join()
