"""`flux dump` and `flux restore`: the KVS as an archive and back, byte for byte, and what is said on the way."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from instance import start


def names(path: Path) -> list[str]:
    with tarfile.open(path) as tar:
        return tar.getnames()


def test_a_tree_comes_back_as_it_was_whatever_is_asked_for_at_a_time(tmp_path: Path) -> None:
    script = """
        flux run true
        flux kvs put a.b=1 a.ü=x && flux kvs link a.b l && flux kvs link --target-namespace=other k m
        head -c 100000 /dev/urandom > big && flux kvs put --raw big.one=- < big
        flux kvs mkdir empty
        flux dump d.tgz
        flux dump --verbose /dev/null 2>&1 | grep -x a/b
        flux dump -q --no-cache --maxreqs=20 --sd-notify - > d.tar
        flux restore --key=old d.tgz
        flux restore -q --no-cache --maxreqs=20 --sd-notify --key=new - < d.tar
        flux kvs get -t old > one; flux kvs get -t new > two; cmp one two
        flux kvs get --raw new.big.one | cmp - big
        flux kvs get new.a.ü; flux kvs readlink new.l new.m
        flux kvs get --raw new.$(flux job id --to=kvs $(flux job last)).eventlog | tail -n1 | grep -o clean
    """
    done = start("sh", "-e", "-c", script, cwd=str(tmp_path))
    assert (done.rc, done.out.splitlines()) == (0, ["a/b", "x", "a.b", "other::k", "clean"]), done.err
    kept = names(tmp_path / "d.tgz")
    assert names(tmp_path / "d.tar") == kept
    assert {"a/b", "a/ü", "big/one", "l", "resource/R"} <= set(kept) and "empty" not in kept
    assert f"flux-dump: archived {len(kept)} keys\n" in done.err
    assert f"flux-restore: restored {len(kept)} keys (" in done.err
    assert "flux-restore: writing snapshot sha1-" in done.err and " to KVS key 'old'\n" in done.err


def test_times_and_owners_do_not_tell_archives_apart(tmp_path: Path) -> None:
    start("sh", "-c", "flux run true; flux kvs put a=1; flux dump -q d.tar", cwd=str(tmp_path))
    with tarfile.open(tmp_path / "d.tar") as tar:
        members = tar.getmembers()
    assert {(member.uid, member.gid) for member in members} == {(0, 0)}
    assert {Path(member.name).name for member in members if member.mtime} - {"input"} == {"eventlog", "output"}


def test_values_that_are_too_large_are_left_out_and_told(tmp_path: Path) -> None:
    script = """
        flux kvs put a=1 b=$(head -c 2000 /dev/zero | tr '\\0' x); flux dump -q d.tar
        flux restore -v --size-limit=1K --key=o d.tar; flux kvs get o.a; flux kvs get o.b
    """
    done = start("sh", "-c", script, cwd=str(tmp_path))
    assert done.out == "1\n"
    assert "flux-restore: b size 2000 exceeds 1024 limit, skipping" in done.err
    assert "o.b: No such file or directory" in done.err


def test_an_archive_of_other_programs_is_taken(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "foreign.tar", "w") as tar:
        folder = tarfile.TarInfo("./some")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name in ("./some/file.txt", "top"):
            info = tarfile.TarInfo(name)
            info.size = 5
            tar.addfile(info, io.BytesIO(b"hello"))
    script = "flux restore -q --key=f foreign.tar; flux kvs get f.some.file.txt f.top"
    done = start("sh", "-c", script, cwd=str(tmp_path))
    assert (done.out, done.err) == ("hello\nhello\n", "")


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    script = """
        flux dump; flux dump /nonexistent/d; flux restore x.tar; flux restore --checkpoint x.tar
        flux restore --key=k /nonexistent/d; head -c 5000 /dev/urandom > noise; flux restore --key=k noise
        flux dump --checkpoint d.tar; flux dump -q whole.tgz; head -c 300 whole.tgz > part.tgz
        flux restore --key=k part.tgz; flux kvs get k
    """
    done = start("sh", "-c", script, cwd=str(tmp_path))
    for text in (
        "Usage: flux-dump [OPTIONS] OUTFILE",
        "flux-dump: Failed to open '/nonexistent/d': No such file or directory",
        "flux-restore: Please specify a restore target with --checkpoint or --key",
        "flux-restore: please unload kvs module before using --checkpoint",
        "flux-restore: Failed to open '/nonexistent/d': No such file or directory",
        "flux-restore: noise is not a complete tar archive",
        "flux-restore: part.tgz is not a complete tar archive",
        "flux-dump: error fetching checkpoint: No such file or directory",
        "flux-kvs: k: No such file or directory",
    ):
        assert text in done.err


def test_a_blob_that_is_gone_ends_the_dump_unless_it_may_be_left_out(tmp_path: Path) -> None:
    missing = '{"ver":1,"type":"valref","data":["sha1-' + "0" * 40 + '"]}'
    script = f"""
        flux kvs put --treeobj lost='{missing}'; flux kvs put z=1
        flux dump -q d.tar; echo $?; flux dump -q --ignore-failed-read d.tar; echo $?
    """
    done = start("sh", "-c", script, cwd=str(tmp_path))
    assert done.out == "1\n0\n"
    assert done.err.count("flux-dump: lost: No such file or directory") == 2
    assert "z" in names(tmp_path / "d.tar") and "lost" not in names(tmp_path / "d.tar")


def test_the_kvs_begins_once_with_a_restored_checkpoint(tmp_path: Path) -> None:
    script = """
        flux kvs put a=1 b.c=2; flux dump -q d.tar; flux kvs put a=9 d=4
        flux module remove -f kvs-watch; flux module remove kvs
        flux restore --checkpoint d.tar; flux module load kvs; flux module load kvs-watch
        flux kvs get a b.c; flux kvs get d; flux kvs put a=5
        flux module remove -f kvs-watch; flux module remove kvs; flux module load kvs
        flux kvs get a; flux dump -q --checkpoint c.tar; tar tf c.tar | grep -x a
    """
    done = start("sh", "-c", script, cwd=str(tmp_path))
    assert done.out.splitlines() == ["1", "2", "5", "a"], done.err
    assert "flux-kvs: d: No such file or directory" in done.err
    assert "flux-restore: writing snapshot sha1-" in done.err and " to checkpoint\n" in done.err
