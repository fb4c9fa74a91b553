"""A `statedir` without room: submits are refused with the reason, running jobs go on, what was acknowledged stays."""

from __future__ import annotations

import base64
import errno
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import instance
import pytest
from bootstrapped import Cluster, cluster, until
from small_disk import fill, mounted

from headrace.engine.broker.state import disk as state_disk
from headrace.formats.spec import jobspec_build
from headrace.wire.client.handle import Handle

SIZE = 24 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of SIZE bytes."""
    with mounted(tmp_path / "disk", f"size={SIZE}") as made:
        yield made


def submission(command: list[str], weight: int = 0) -> dict[str, object]:
    """A request for job-ingest.submit whose job takes `weight` bytes of disk."""
    spec = jobspec_build.from_command(command)
    # Random hexadecimal digits, so that no compression helps.
    spec["attributes"]["system"].update(cwd="/tmp", environment={"WEIGHT": secrets.token_hex(weight)})
    head = base64.b64encode(b"version\0i1\0userid\0i%d\0mechanism\0snone\0" % os.getuid()).decode()
    text = base64.b64encode(json.dumps(spec).encode()).decode()
    return {"J": f"{head}.{text}.none", "urgency": 16, "flags": 0}


def submit_until_refused(handle: Handle) -> tuple[list[int], OSError]:
    """Ids of the jobs that were taken, and the error of the first that was not."""
    taken: list[int] = []
    for _ in range(1000):
        try:
            taken.append(handle.rpc("job-ingest.submit", submission(["true"], 32 << 10)).get(60)["id"])
        except OSError as exc:
            return taken, exc
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
            runs = handle.rpc("job-ingest.submit", submission(["sleep", "1"])).get(60)["id"]
            filler = fill(disk, left=1 << 20)
            taken, refused = submit_until_refused(handle)
            assert taken
            assert refused.errno == errno.ENOSPC
            fill(disk)
            told = brokers.flux("submit", "true")
            assert told.returncode == 1
            assert told.stderr == f"{disk}/state/jobs has no room for more: the disk is full: make room there\n"
            # Everything else is served, and what was taken comes to its end.
            assert brokers.flux("getattr", "size").stdout == "1\n"
            handle.rpc("job-manager.drain", {}).get(60)
            assert {runs, *taken} <= set(listed(brokers))
            filler.unlink()
            until(lambda: brokers.flux("submit", "true").returncode == 0, "submits are taken again")
            later, _ = [handle.rpc("job-ingest.submit", submission(["true"])).get(60)["id"] for _ in range(2)]
        assert brokers.finish() == {0: 0}
        assert "Traceback" not in brokers.log(0)
        brokers.lead()
        assert {runs, later, *taken} <= set(listed(brokers))
        # The last were perhaps not begun when it was told to end.
        until(lambda: set(listed(brokers).values()) == {"INACTIVE"}, "all jobs end")
        assert brokers.finish() == {0: 0}
        brokers.until_nothing_is_left()


def test_jobs_that_run_while_the_disk_fills_up_end_well_and_stay_so(disk: Path, tmp_path: Path) -> None:
    """What they write has no room any more; that they ended has."""
    go = tmp_path / "go"
    wordy = f"until [ -e {go} ]; do sleep 0.02; done; head -c 6000000 /dev/zero | tr '\\0' x | fold -w 1000"
    with cluster(1, f"statedir={disk}/state") as brokers:
        brokers.lead()
        with brokers.handle() as handle:
            ids = [handle.rpc("job-ingest.submit", submission(["sh", "-c", wordy])).get(60)["id"] for _ in range(4)]
            filler = fill(disk, left=1 << 20)
            taken, refused = submit_until_refused(handle)
            assert refused.errno == errno.ENOSPC
            # What the instance keeps of the disk it keeps for them.
            fill(disk)
            go.touch()
            handle.rpc("job-manager.drain", {}).get(60)
            stats = handle.rpc("job-manager.stats-get").get(60)
        assert not stats["durable"]["failing"]
        ended = {id: "COMPLETED" for id in (*ids, *taken)}
        assert results(brokers) == ended
        for id in ids:
            assert "output is lost" in brokers.flux("job", "attach", str(id)).stderr
        # The first is told of at once, the others soon.
        until(lambda: "output is lost" in brokers.log(0) and "(and that of " in brokers.log(0), "the log counts them")
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
            filler = fill(disk, left=1 << 20)
            taken, _ = submit_until_refused(handle)
            assert taken
            fill(disk)
        brokers.brokers[0].kill()
        brokers.brokers[0].wait()
        filler.unlink()
        brokers.lead()
        with brokers.handle() as handle:
            handle.rpc("job-manager.drain", {}).get(60)
        assert set(taken) <= set(listed(brokers))
        assert brokers.finish() == {0: 0}


def test_a_start_on_a_full_disk_says_what_it_needs_and_leaves_nothing(disk: Path) -> None:
    with cluster(1, f"statedir={disk}/state") as brokers:
        filler = fill(disk)
        assert brokers.broker(0, "true").wait(60) == 1
        said = brokers.log(0)
        assert f"flux-broker: statedir {disk}/state: its disk has 0 KiB free, an instance needs 1536 KiB" in said
        assert "make room there, or take a folder on another disk" in said
        assert "Traceback" not in said
        assert os.listdir(disk) == ["filler"]
        # Where there is just enough an instance works.
        os.truncate(filler, SIZE - state_disk.NEEDED - (64 << 10))
        process = brokers.broker(0, "flux", "run", "echo", "enough")
        assert (process.wait(60), process.communicate()[0]) == (0, "enough\n"), brokers.log(0)


def test_a_restart_on_a_disk_that_filled_up_after_a_kill_says_what_is_wrong_or_works(disk: Path) -> None:
    with cluster(1, f"statedir={disk}/state") as brokers:
        brokers.lead()
        id = brokers.flux("submit", "true").stdout
        fill(disk)
        brokers.brokers[0].kill()
        brokers.brokers[0].wait()
        process = brokers.broker(0, "flux", "jobs", "-ano", "{id}")
        if process.wait(60):
            assert "its disk has" in brokers.log(0)
        else:
            assert process.communicate()[0] == id
        assert "Traceback" not in brokers.log(0)


def random_middle(data: bytes) -> bytes:
    third = len(data) // 3
    return data[:third] + secrets.token_bytes(third) + data[2 * third :]


DAMAGE = {
    "not a database": lambda data: b"what is this? " * 1000,
    "malformed": random_middle,
    "disk image is malformed": lambda data: data[: len(data) // 2],
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A statedir with two jobs in the database, one in the journal, and a large value."""
    state = tmp_path_factory.mktemp("sound")
    with cluster(1, f"statedir={state}") as brokers:
        brokers.lead()
        for key in "abcdefgh":
            assert brokers.flux("kvs", "put", f"{key}={secrets.token_hex(20_000)}").returncode == 0
        assert brokers.flux("run", "true").returncode == 0
        assert brokers.finish() == {0: 0}
    return state


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["kvs.sqlite", "content.sqlite", "jobs/jobs.sqlite"])
def test_a_start_on_a_damaged_database_says_what_can_be_done_and_touches_nothing(
    name: str, damage: str, sound: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    shutil.copytree(sound, state)
    path = state / name
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    before = path.read_bytes()
    with cluster(1, f"statedir={state}") as brokers:
        told = brokers.broker(0, "flux", "kvs", "ls").wait(60)
        if (name, damage) == ("content.sqlite", "malformed"):
            # Nobody reads all of it at the start.
            assert told in (0, 1)
        else:
            assert told == 1
            said = brokers.log(0)
            assert f"{path} cannot be used: " in said and damage in said
            assert f"To start without it: mv {path}* ELSEWHERE." in said
            assert path.read_bytes() == before
        assert "Traceback" not in brokers.log(0)
        for part in path.parent.glob(path.name + "*"):
            part.unlink()
        brokers.lead()
        assert list(listed(brokers).values()) == ["INACTIVE"]
        assert brokers.flux("run", "echo", "again").stdout == "again\n"
        kept = brokers.flux("kvs", "get", "h").returncode == 0
        assert kept == (name != "kvs.sqlite")
        assert brokers.finish() == {0: 0}


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


def test_on_a_full_disk_who_adds_to_it_is_told_at_once_and_all_goes_on_when_there_is_room(disk: Path) -> None:
    """What the journal keeps in reserve is for ends: a job that would begin now had nowhere to write to."""
    large = secrets.token_hex(50_000)
    with cluster(1, f"statedir={disk}/state") as brokers:
        brokers.lead()
        filler = fill(disk)
        full = "the disk is full: make room there"
        for command in ("submit", "run"):
            told = brokers.flux(command, "true")
            assert told.returncode == 1
            assert told.stderr.endswith(f"{disk}/state/jobs has no room for more: {full}\n")
        told = brokers.flux("kvs", "put", f"a={large}")
        why = f"No space left on device ({disk}/state/kvs.sqlite cannot be written: {full})"
        assert (told.returncode, told.stderr) == (1, f"flux-kvs: flux_kvs_commit: {why}\n")
        filler.unlink()
        assert brokers.flux("run", "echo", "again").stdout == "again\n"
        assert brokers.flux("kvs", "put", f"a={large}").returncode == 0
        assert brokers.finish() == {0: 0}


def test_a_drain_on_a_full_disk_is_refused_or_there_after_a_kill(disk: Path) -> None:
    with cluster(1, f"statedir={disk}/state") as brokers:
        brokers.lead()
        fill(disk)
        # What the file has allocated already takes some.
        for turn in range(100):
            told = brokers.flux("resource", *(("undrain", "0") if turn % 2 else ("drain", "0", "x" * 4000)))
            if told.returncode:
                break
        full = "cannot be written: the disk is full: make room there"
        assert (told.returncode, told.stderr.endswith(f"{disk}/state/kvs.sqlite {full}\n")) == (1, True), told.stderr
        (disk / "filler").unlink()
        assert brokers.flux("resource", "drain", "--force", "0", "later").returncode == 0
        brokers.brokers[0].kill()
        brokers.brokers[0].wait()
        brokers.lead()
        assert brokers.flux("resource", "drain", "-no", "{ranks} {reason}").stdout == "0 later\n"
        assert brokers.finish() == {0: 0}


def test_a_run_directory_without_room_is_named_with_the_reason() -> None:
    """By what starts there, and by what runs in an instance that is there."""
    # Socket paths would be too long below the folder of this test.
    with tempfile.TemporaryDirectory(prefix="hr-") as folder, mounted(Path(folder, "run"), "nr_inodes=200") as run:
        script = Path(folder, "script")
        script.write_text("#!/bin/sh\nhostname\n")

        def take(inodes: int) -> None:
            """All but as many new files have room."""
            (run / "taken").mkdir(exist_ok=True)
            for name in range(os.statvfs(run).f_ffree - inodes):
                (run / "taken" / f"{secrets.token_hex(4)}-{name}").touch()

        inside = f"""
            id=$(flux batch -n1 --output={folder}/out {script})
            flux job attach $id
        """
        full = "No space left on device"
        take(0)
        told = instance.start("true", prefix=("env", f"TMPDIR={run}"))
        assert (told.rc, told.err) == (
            1,
            f"flux-broker: cannot create directory in {run}: {full}; set TMPDIR to another folder\n",
        )
        shutil.rmtree(run / "taken")
        for left, what in ((1, "local-0"), (2, "jobs-.*spill")):
            take(left)
            told = instance.start("true", prefix=("env", f"TMPDIR={run}"))
            assert told.rc == 1
            assert re.search(rf"{run}/flux-\w+/{what}: {full}\n", told.err), told.err
            shutil.rmtree(run / "taken")
        fill_up = f"mkdir {run}/taken; while touch {run}/taken/$i; do i=x$i; done 2>/dev/null;"
        told = instance.start("sh", "-c", fill_up + inside, prefix=("env", f"TMPDIR={run}"))
        assert told.rc == 1
        assert re.search(rf"cannot prepare {run}/flux-\w+/jobtmp-0-\S+: {full}\n", told.err), told.err
        assert "Errno" not in told.err and "Traceback" not in told.err
