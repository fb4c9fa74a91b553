"""Meeting in a folder: each reads what the others wrote, whenever they do, and nothing is left."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest

from headrace.engine.broker.boot import slurm
from headrace.engine.broker.boot.pmi_clients import PmiError
from headrace.engine.broker.boot.slurm import SlurmMeeting, offered


def env(rank: int, folder: Path, **more: str) -> dict[str, str]:
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_NTASKS": "2",
        "SLURM_JOB_ID": "17",
        "SLURM_STEP_ID": "0",
        "HEADRACE_SLURM_DIR": str(folder),
        **more,
    }


def test_what_is_put_late_is_read_whole_and_the_last_removes_the_folder(tmp_path: Path) -> None:
    one, two = (SlurmMeeting(env(rank, tmp_path)) for rank in range(2))
    writer = threading.Timer(0.1, one.put, ("key", "a value, whole"))
    writer.start()
    assert two.get("key") == "a value, whole"
    writer.join()
    assert os.stat(tmp_path / "slurm-17.0" / "key").st_mode & 0o777 == 0o600
    assert os.stat(tmp_path / "slurm-17.0").st_mode & 0o777 == 0o700
    one.finalize()
    assert (tmp_path / "slurm-17.0").exists()
    two.finalize()
    assert list(tmp_path.iterdir()) == []


def test_who_does_not_come_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_EXCHANGE_TIMEOUT", 0.05)
    with pytest.raises(PmiError, match="not written by its task"):
        SlurmMeeting(env(0, tmp_path)).get("never")


def test_tasks_of_one_node_are_told_so(tmp_path: Path) -> None:
    assert SlurmMeeting(env(0, tmp_path, SLURM_STEP_NUM_NODES="1")).lookup("PMI_process_mapping") == "(vector,(0,1,2))"
    assert SlurmMeeting(env(0, tmp_path, SLURM_NNODES="2")).lookup("PMI_process_mapping") == ""


def test_the_step_counts_not_the_allocation(tmp_path: Path) -> None:
    assert SlurmMeeting(env(1, tmp_path, SLURM_STEP_NUM_TASKS="9")).size == 9


@pytest.mark.parametrize("name", ["SLURM_PROCID", "SLURM_STEP_ID", "SLURM_NTASKS"])
def test_variables_that_are_missing_are_named(tmp_path: Path, name: str) -> None:
    variables = env(0, tmp_path)
    del variables[name]
    with pytest.raises(PmiError, match=name):
        SlurmMeeting(variables)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"SLURM_PROCID": "5"}, "SLURM_PROCID=5: must be less than SLURM_NTASKS, which is 2"),
        ({"SLURM_PROCID": "-1"}, "SLURM_PROCID=-1: must be a number, 0 or more"),
        ({"SLURM_NTASKS": "two"}, "SLURM_NTASKS=two: must be a number"),
        ({"SLURM_STEP_NUM_TASKS": "0"}, "SLURM_STEP_NUM_TASKS=0: a step has at least one task"),
        ({"SLURM_STEP_ID": "../x"}, "SLURM_STEP_ID=../x: must be a number"),
        ({"SLURM_STEP_NODELIST": "nohost[1-"}, "SLURM_STEP_NODELIST: hostlist 'nohost[1-'"),
        ({"SLURM_STEP_TASKS_PER_NODE": "2,x"}, "SLURM_STEP_TASKS_PER_NODE=2,x: must be numbers of tasks such as"),
        ({"SLURM_STEP_TASKS_PER_NODE": "1(x3)"}, "these are 3 tasks, SLURM_NTASKS says 2"),
        (
            {"SLURM_STEP_NODELIST": "n[1-3]", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"},
            "not 3 in SLURM_STEP_NODELIST=n[1-3], 2 in SLURM_STEP_TASKS_PER_NODE=1(x2)",
        ),
    ],
)
def test_variables_that_cannot_be_true_are_named_before_anybody_waits(
    tmp_path: Path, wrong: dict[str, str], told: str
) -> None:
    with pytest.raises(PmiError, match=re.escape(told)):
        SlurmMeeting(env(0, tmp_path, **wrong))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "told",
    [
        {"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"},
        # Of two dimensions, and of one component of several.
        {"SLURM_STEP_NODELIST": "r[1-2]n[1-4]", "SLURM_STEP_TASKS_PER_NODE": "2"},
        {"SLURM_STEP_NODELIST": "n1", "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_HET_SIZE": "2"},
    ],
)
def test_what_srun_says_of_nodes_is_taken(tmp_path: Path, told: dict[str, str]) -> None:
    assert SlurmMeeting(env(1, tmp_path, **told)).rank == 1


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PmiError, match="file"):
        SlurmMeeting(env(0, tmp_path / "file"))


def test_a_batch_script_is_no_step(tmp_path: Path) -> None:
    variables = env(0, tmp_path)
    assert offered(variables)
    del variables["SLURM_STEP_ID"]
    assert not offered(variables)
