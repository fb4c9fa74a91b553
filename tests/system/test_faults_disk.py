"""A `statedir` without room: submits are refused with the reason, running jobs go on, what was acknowledged stays."""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from bootstrapped import Cluster, cluster, until

from headrace.client.handle import Handle
from headrace.spec import jobspec_build

SIZE = 24 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of SIZE bytes."""
    if os.getuid() != 0:
        pytest.skip("needs root to mount a small file system")
    made = tmp_path / "disk"
    made.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(made)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"this machine mounts no tmpfs: {mounted.stderr.strip()}")
    try:
        yield made
    finally:
        subprocess.run(["umount", "-l", str(made)], check=True)


def submission(command: list[str], weight: int = 0) -> dict[str, object]:
    """A request for job-ingest.submit whose job takes `weight` bytes of disk."""
    spec = jobspec_build.from_command(command)
    # Random hexadecimal digits, so that no compression helps.
    spec["attributes"]["system"].update(cwd="/tmp", environment={"WEIGHT": secrets.token_hex(weight)})
    head = base64.b64encode(b"version\0i1\0userid\0i%d\0mechanism\0snone\0" % os.getuid()).decode()
    text = base64.b64encode(json.dumps(spec).encode()).decode()
    return {"J": f"{head}.{text}.none", "urgency": 16, "flags": 0}


def fill(folder: Path) -> Path:
    """A file that takes all the room there is."""
    path = folder / "filler"
    with open(path, "wb", buffering=0) as handle, contextlib.suppress(OSError):
        while True:
            handle.write(b"x" * (1 << 16))
    return path


def submit_until_refused(handle: Handle) -> tuple[list[int], OSError]:
    """Ids of the jobs that were taken, and the error of the first that was not."""
    taken: list[int] = []
    for _ in range(1000):
        try:
            taken.append(handle.rpc("job-ingest.submit", submission(["true"], 32 << 10)).get(30)["id"])
        except OSError as exc:
            return taken, exc
    raise AssertionError("no submit was refused, so nothing was tested")


def refused_submit(brokers: Cluster) -> subprocess.CompletedProcess[str]:
    """The first `flux submit` that fails."""
    for _ in range(200):
        told = brokers.flux("submit", "true")
        if told.returncode:
            return told
    raise AssertionError("no submit was refused, so nothing was tested")


def listed(brokers: Cluster) -> dict[int, str]:
    """All jobs, id and state."""
    lines = brokers.flux("jobs", "-a", "-c0", "-no", "{id.dec} {state}").stdout.splitlines()
    return {int(number): state for number, state in map(str.split, lines)}


def results(brokers: Cluster) -> dict[int, str]:
    """All jobs, id and result."""
    lines = brokers.flux("jobs", "-a", "-c0", "-no", "{id.dec} {result}").stdout.splitlines()
    return {int(number): result for number, result in map(str.split, lines)}


def test_a_full_statedir_refuses_submits_keeps_jobs_and_recovers(disk: Path) -> None:
    with cluster(1, f"statedir={disk}/state") as brokers:
        brokers.lead()
        with brokers.handle() as handle:
            runs = handle.rpc("job-ingest.submit", submission(["sleep", "1"])).get(30)["id"]
            filler = fill(disk)
            taken, refused = submit_until_refused(handle)
            assert refused.errno == errno.ENOSPC
            assert "the disk is full" in str(refused)
            # There may still be room for small ones.
            told = refused_submit(brokers)
            assert told.returncode == 1
            assert "the disk is full" in told.stderr
            # Everything else is served, and what was taken comes to its end.
            assert brokers.flux("getattr", "size").stdout == "1\n"
            handle.rpc("job-manager.drain", {}).get(60)
            assert {runs, *taken} <= set(listed(brokers))
            filler.unlink()
            until(lambda: brokers.flux("submit", "true").returncode == 0, "submits are taken again")
            later, _ = [handle.rpc("job-ingest.submit", submission(["true"])).get(30)["id"] for _ in range(2)]
        assert brokers.finish() == {0: 0}
        assert "Traceback" not in brokers.log(0)
        brokers.lead()
        states = listed(brokers)
        assert {runs, later, *taken} <= set(states)
        assert set(states.values()) == {"INACTIVE"}
        assert brokers.finish() == {0: 0}
        until(lambda: not brokers.left(), "nothing is left")


def test_jobs_that_run_while_the_disk_fills_up_end_well_and_stay_so(disk: Path, tmp_path: Path) -> None:
    """What they write has no room any more; that they ended has."""
    go = tmp_path / "go"
    wordy = f"until [ -e {go} ]; do sleep 0.02; done; head -c 6000000 /dev/zero | tr '\\0' x | fold -w 1000"
    with cluster(1, f"statedir={disk}/state") as brokers:
        brokers.lead()
        with brokers.handle() as handle:
            ids = [handle.rpc("job-ingest.submit", submission(["sh", "-c", wordy])).get(30)["id"] for _ in range(4)]
            filler = fill(disk)
            taken, refused = submit_until_refused(handle)
            assert refused.errno == errno.ENOSPC
            # What the instance keeps of the disk it keeps for them.
            fill(disk)
            go.touch()
            handle.rpc("job-manager.drain", {}).get(60)
            stats = handle.rpc("job-manager.stats-get").get(30)
        assert not stats["durable"]["failing"]
        ended = {id: "COMPLETED" for id in (*ids, *taken)}
        assert results(brokers) == ended
        assert "output is lost" in brokers.log(0)
        brokers.brokers[0].kill()
        brokers.brokers[0].wait()
        filler.unlink()
        (disk / "filler").unlink(missing_ok=True)
        brokers.lead()
        assert results(brokers) == ended
        assert "output is lost" in brokers.flux("job", "attach", str(ids[0])).stderr
        assert brokers.flux("run", "echo", "again").stdout == "again\n"
        assert brokers.finish() == {0: 0}


def test_a_lead_killed_on_a_full_disk_loses_nothing_it_acknowledged(disk: Path) -> None:
    with cluster(1, f"statedir={disk}/state") as brokers:
        brokers.lead()
        with brokers.handle() as handle:
            filler = fill(disk)
            taken, _ = submit_until_refused(handle)
        brokers.brokers[0].kill()
        brokers.brokers[0].wait()
        filler.unlink()
        brokers.lead()
        with brokers.handle() as handle:
            handle.rpc("job-manager.drain", {}).get(60)
        assert set(taken) <= set(listed(brokers))
        assert brokers.finish() == {0: 0}


def test_a_start_on_a_full_disk_says_so(disk: Path) -> None:
    with cluster(1, f"statedir={disk}/state") as brokers:
        fill(disk)
        process = brokers.broker(0, "true")
        assert process.wait(30) != 0
        assert (
            f"rc1: module content: {disk}/state/content.sqlite cannot be used: database or disk is full"
            in brokers.log(0)
        )
        assert "Traceback" not in brokers.log(0)


@pytest.mark.parametrize("name", ["content.sqlite", "jobs/jobs.sqlite"])
def test_a_start_on_a_broken_database_names_it(name: str, tmp_path: Path) -> None:
    with cluster(1, f"statedir={tmp_path}") as brokers:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"what is this? " * 1000)
        assert brokers.broker(0, "true").wait(30) != 0
        assert f"{path} cannot be used: file is not a database" in brokers.log(0)
        assert "Traceback" not in brokers.log(0)


def test_a_file_size_limit_is_a_full_disk(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands in for quota: no root is needed, and the limit is not lifted again."""
    with cluster(1, f"statedir={tmp_path}/state") as brokers:
        brokers.lead(prefix=("prlimit", f"--fsize={5 << 20}"))
        with brokers.handle() as handle:
            taken, refused = submit_until_refused(handle)
            assert refused.errno == errno.ENOSPC
            assert brokers.flux("getattr", "size").stdout == "1\n"
            handle.rpc("job-manager.drain", {}).get(60)
            assert set(taken) <= set(listed(brokers))
        assert brokers.finish()[0] == 0
        brokers.lead()
        assert set(taken) <= set(listed(brokers))
        assert brokers.finish() == {0: 0}
