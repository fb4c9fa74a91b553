"""An instance saved as an archive and taken up by another: no job is lost, and what cannot go on has a reason."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

from instance import start

# What an instance of two brokers is left with: a job that is over, two that wait for each other behind one that is
# held, and one that needs both brokers.
_FILL = """
    over=$(flux submit --wait -n1 sh -c 'echo I was here')
    held=$(flux submit --urgency=hold sh -c 'echo held > held.out')
    after=$(flux submit --dependency=afterok:$held sh -c 'echo after > after.out')
    wide=$(flux submit --urgency=hold -N2 --exclusive true)
    flux kvs put my.key=kept
    echo over=$over held=$held after=$after wide=$wide > ids
"""


def test_what_waited_goes_on_in_a_smaller_instance_and_what_is_over_stays(tmp_path: Path) -> None:
    saved = start("--test-size=2", "-Scontent.dump=a.tgz", "sh", "-e", "-c", _FILL, cwd=str(tmp_path))
    assert saved.rc == 0 and "dumping content to a.tgz\n" in saved.err, saved.err
    assert [path.name for path in tmp_path.iterdir() if "part" in path.name] == []
    script = """
        . ./ids
        flux job attach $over; flux kvs get my.key; flux jobs -no '{id} {status}' $over $after
        flux job urgency $held default; flux job wait-event -t 30 $after clean
        cat held.out after.out
        flux job urgency $wide default; flux job wait-event -t 30 $wide clean; flux job status $wide; echo wide $?
        flux job eventlog $held | grep -c flux-restart
    """
    done = start("-Scontent.restore=a.tgz", "sh", "-c", script, cwd=str(tmp_path))
    ids = dict(word.split("=") for word in (tmp_path / "ids").read_text().split())
    lines = [line for line in done.out.splitlines() if " clean" not in line]
    want = ["I was here", "kept", f"{ids['over']} COMPLETED", f"{ids['after']} DEPEND", "held", "after", "wide 1"]
    assert lines == [*want, "1"], (done.out, done.err)
    assert "restoring content from a.tgz\n" in done.err


def test_what_ran_ends_with_a_reason_or_is_queued_anew(tmp_path: Path) -> None:
    script = """
        runs=$(flux submit sleep 300)
        again=$(flux submit -S requeue=true sh -c 'touch begun.$$; test -e go || sleep 300')
        flux job wait-event -t 30 $runs start; flux job wait-event -t 30 $again start
        flux dump -q live.tar; echo runs=$runs again=$again > ids
    """
    start("sh", "-c", script, cwd=str(tmp_path))
    (tmp_path / "go").touch()
    script = """
        flux start -Sstatedir=state -Scontent.restore=live.tar sh -c '
            . ./ids; flux job attach $again; flux job attach $runs; kill -9 $(flux getattr broker.pid)'
        flux start -Sstatedir=state sh -c '. ./ids; flux jobs -ano "{id} {result}"'
    """
    (tmp_path / "state").mkdir()
    done = start("sh", "-c", script, cwd=str(tmp_path))
    ids = dict(word.split("=") for word in (tmp_path / "ids").read_text().split())
    assert "type=exec severity=0 the job was running when its instance was saved" in done.err
    assert set(done.out.splitlines()) >= {f"{ids['again']} COMPLETED", f"{ids['runs']} FAILED"}, (done.out, done.err)


def test_auto_names_archives_by_their_time_and_takes_the_last_up_once(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    begin = ("-Sstatedir=state", "-Scontent.dump=auto", "-Scontent.restore=auto", "sh", "-c")
    script = "flux kvs put a=1; flux submit --wait true"
    first = start(*begin, script, cwd=str(tmp_path))
    assert first.rc == 0 and "restoring" not in first.err
    (archive,) = [path for path in (tmp_path / "state" / "dump").iterdir() if path.suffix == ".tgz"]
    link = tmp_path / "state" / "dump" / "RESTORE"
    assert os.readlink(link) == archive.name
    for path in (tmp_path / "state").iterdir():
        if path.name != "dump":
            path.unlink() if path.is_file() else [file.unlink() for file in path.iterdir() if file.is_file()]
    second = start(*begin, "flux kvs get a; flux jobs -ano '{name}'; ls -A state/dump", cwd=str(tmp_path))
    assert second.out.splitlines() == ["1", "true", archive.name], second.err
    assert f"restoring content from {link}\n" in second.err


def test_jobs_of_an_archive_are_taken_once_and_those_that_make_no_sense_are_named(tmp_path: Path) -> None:
    script = """
        flux run true; flux run -n1 echo hi; flux dump -q a.tar; flux restore --instance a.tar
        tar xf a.tar -C x
        log=$(ls -d x/job/*/*/*/*/eventlog | tail -n1); mv $(dirname $log) x/job/0000/0000/0000/0001
        echo nonsense > x/job/0000/0000/0000/0001/eventlog; (cd x; tar cf ../b.tar job)
        flux restore --instance --verbose b.tar; echo $?
    """
    done = start("sh", "-c", f"mkdir -p x/job/0000/0000/0000; {script}", cwd=str(tmp_path))
    assert "flux-restore: restored 0 jobs, 2 already existed\n" in done.err
    assert "flux-restore: job ƒ2 is not restored: eventlog: " in done.err
    assert done.out.splitlines()[-1] == "1"
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert len([name for name in tar.getnames() if name.endswith("/jobspec")]) == 2


def test_an_archive_that_is_not_there_is_named_and_one_that_is_none_ends_the_start(tmp_path: Path) -> None:
    done = start("-Scontent.restore=/nonexistent/a.tgz", "true", cwd=str(tmp_path))
    assert (done.rc, done.out) == (0, "")
    assert "content.restore: /nonexistent/a.tgz not found: there is nothing to restore" in done.err
    noise = os.urandom(5000)
    (tmp_path / "noise").write_bytes(noise)
    done = start("-Scontent.restore=noise", "-Scontent.dump=noise", "true", cwd=str(tmp_path))
    assert done.rc == 1
    assert (tmp_path / "noise").read_bytes() == noise, "what cannot be restored is not replaced"
    assert "noise is not a complete tar archive" in done.err and "noise cannot be restored" in done.err
    assert done.left == []
