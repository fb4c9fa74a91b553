"""A journal that was torn or damaged while no broker ran: a restart says what it found and has all from before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bootstrapped import Cluster, cluster
from test_faults_disk import listed, submission

COUNT = 8


def acknowledged(brokers: Cluster) -> list[tuple[int, int]]:
    """Submit held jobs one after another, then kill the lead; each id with the journal's size when it was known."""
    brokers.lead()
    found = []
    with brokers.handle() as handle:
        for _ in range(COUNT):
            body = {**submission(["true"], 100), "urgency": 0}
            number = handle.rpc("job-ingest.submit", body).get(60)["id"]
            stats = handle.rpc("job-manager.stats-get").get(60)
            found.append((number, stats["durable"]["bytes"]))
    brokers.brokers[0].kill()
    brokers.brokers[0].wait()
    return found


def restarted(brokers: Cluster) -> set[int]:
    """The jobs after a restart that must work."""
    brokers.lead()
    found = set(listed(brokers))
    assert brokers.flux("run", "echo", "alive").stdout == "alive\n"
    brokers.flux("cancel", "--all")
    assert brokers.finish() == {0: 0}
    assert "Traceback" not in brokers.log(0)
    return found


def journal_of(state: Path) -> Path:
    (path,) = (state / "jobs").glob("journal.0*")
    return path


@pytest.mark.parametrize("lost", [1, 7, 40])
def test_a_torn_end_costs_only_the_write_that_was_torn(lost: int, tmp_path: Path) -> None:
    with cluster(1, f"statedir={tmp_path}") as brokers:
        jobs = acknowledged(brokers)
        os.truncate(journal_of(tmp_path), jobs[-1][1] - lost)
        after = restarted(brokers)
        assert {number for number, _ in jobs[:-1]} <= after
        assert "bytes of an unfinished write were dropped" in brokers.log(0)


@pytest.mark.parametrize("is_head", [False, True])
def test_damage_in_the_middle_costs_one_job_and_with_the_head_of_a_frame_those_behind_it(
    is_head: bool, tmp_path: Path
) -> None:
    with cluster(1, f"statedir={tmp_path}") as brokers:
        jobs = acknowledged(brokers)
        path = journal_of(tmp_path)
        data = bytearray(path.read_bytes())
        half = COUNT // 2
        place = jobs[half][1] + (2 if is_head else 20)
        data[place] ^= 0x10
        path.write_bytes(bytes(data))
        left = {number for number, _ in jobs[: half + 1] + ([] if is_head else jobs[half + 2 :])}
        after = restarted(brokers)
        assert after & {number for number, _ in jobs} == left
        assert f"{path} is damaged at byte" in brokers.log(0)
        (aside,) = (tmp_path / "jobs").glob("damaged.*")
        assert str(aside) in brokers.log(0)
        kept = data[place : jobs[-1][1] if is_head else jobs[half + 1][1]]
        assert bytes(kept) in aside.read_bytes()
        # Said once: what came after it is sound.
        brokers.lead()
        assert left <= set(listed(brokers))
        assert brokers.finish() == {0: 0}
        assert brokers.log(0).count("is damaged at byte") == 1


def test_damage_in_a_frame_of_more_than_a_mebibyte_costs_its_job_alone(tmp_path: Path) -> None:
    with cluster(1, f"statedir={tmp_path}") as brokers:
        brokers.lead()
        found = []
        with brokers.handle() as handle:
            for width in (100, 700_000, 100, 300_000, 100):
                body = {**submission(["true"], width), "urgency": 0}
                number = handle.rpc("job-ingest.submit", body).get(60)["id"]
                found.append((number, handle.rpc("job-manager.stats-get").get(60)["durable"]["bytes"]))
        brokers.brokers[0].kill()
        brokers.brokers[0].wait()
        path = journal_of(tmp_path)
        data = bytearray(path.read_bytes())
        data[found[0][1] + 2000] ^= 0x10
        path.write_bytes(bytes(data))
        after = restarted(brokers)
        assert [number in after for number, _ in found] == [True, False, True, True, True]
        assert f"{path} is damaged at byte" in brokers.log(0)
        (aside,) = (tmp_path / "jobs").glob("damaged.*")
        assert aside.read_bytes() == bytes(data[found[0][1] : found[1][1]])
