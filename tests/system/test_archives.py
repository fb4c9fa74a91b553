"""`flux archive`: files into the KVS and out of it, with their kinds, permissions, times and holes."""

from __future__ import annotations

import os
from pathlib import Path

from instance import start


def run(script: str, folder: Path, *options: str) -> tuple[list[str], str]:
    done = start(*options, "sh", "-c", script, cwd=str(folder))
    return done.out.splitlines(), done.err


def test_files_come_out_as_they_went_in(tmp_path: Path) -> None:
    source = tmp_path / "in"
    (source / "d" / "empty").mkdir(parents=True)
    (source / "d" / "run.sh").write_text("#!/bin/sh\n")
    (source / "d" / "run.sh").chmod(0o750)
    (source / "d" / "link").symlink_to("run.sh")
    (source / "noise").write_bytes(os.urandom(100_000))
    with open(source / "sparse", "wb") as file:
        file.seek(1 << 24)
        file.write(b"end")
        file.truncate(1 << 25)
    os.utime(source / "noise", (1e9, 1e9))
    out, err = run(
        """
        flux archive create --verbose --directory=in --chunksize=30000 --small-file-threshold=1K .
        mkdir out; flux archive extract --verbose -C out
        flux archive list; flux archive list --long 'd/*'; flux archive list --raw noise | grep -o '"sha1-' | wc -l
        flux kvs get archive.main | grep -c '"blobvec"'
        """,
        tmp_path,
    )
    names = ["d", "d/empty", "d/link", "d/run.sh", "noise", "sparse"]
    long = ["d 0755        0 d/empty", "l 0777        0 d/link", "f 0750       10 d/run.sh"]
    assert out == [*names, *long, "4", "1"]
    assert err.splitlines() == names * 2
    for name in names:
        one, two = source / name, tmp_path / "out" / name
        assert one.lstat().st_mode == two.lstat().st_mode
        if one.is_symlink():
            assert os.readlink(one) == os.readlink(two)
        elif one.is_file():
            assert one.read_bytes() == two.read_bytes()
            assert int(one.stat().st_mtime) == int(two.stat().st_mtime)
    assert (tmp_path / "out" / "sparse").stat().st_blocks * 512 < 1 << 20


def test_names_appending_overwriting_and_removing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").write_text("two")
    out, err = run(
        """
        flux archive create a; flux archive create a; echo $?
        flux archive create --append b; flux archive list
        flux archive create --overwrite --preserve b; flux archive list
        flux archive create -n other a; flux archive extract -n other --list-only 'a*'
        flux archive extract -n other; echo $?
        echo changed > a; flux archive extract -n other --overwrite; cat a
        flux archive remove -n other; flux archive remove -n other; flux archive remove --force -n other; echo $?
        flux archive list -n other; flux archive create --name=abs /etc/passwd; flux archive create --append nothing
        FLUX_KVS_NAMESPACE=mine; export FLUX_KVS_NAMESPACE; flux kvs namespace create mine
        flux archive create --no-force-primary a; flux archive list --no-force-primary
        flux archive extract --no-force-primary --overwrite; flux archive remove --no-force-primary; echo $?
        """,
        tmp_path,
    )
    assert out == ["1", "a", "b", "b", "a", "1", "one0", "a", "0"]
    for text in (
        "flux-archive: archive.main: key exists",
        "flux-archive: a: write: Attempt to overwrite existing file",
        "flux-archive: archive.other does not exist",
        "flux-archive: KVS lookup archive.other: No such file or directory",
        "flux-archive: /etc/passwd: path '/etc/passwd' must be relative",
        "flux-archive: nothing: No such file or directory",
    ):
        assert text in err


def test_an_archive_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("came")
    out, err = run(
        """
        flux archive extract --waitcreate=0.1s; echo $?
        mkdir out; flux archive extract -C out --waitcreate & flux archive create a; wait; cat out/a
        """,
        tmp_path,
    )
    assert out == ["1", "came"]
    assert "flux-archive: KVS lookup archive.main: " in err


def test_jobs_on_all_nodes_extract_what_one_had(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(os.urandom(1 << 20))
    script = """
        flux archive create data
        flux run -N3 sh -c 'cd $FLUX_JOB_TMPDIR && flux archive extract && cmp data $OLDPWD/data && echo same'
    """
    assert run(script, tmp_path, "--test-size=3")[0] == ["same"] * 3


def test_a_link_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    objects = (
        '[{"path":"l","mode":41471,"data":"../outside"},{"path":"l/f","mode":33188,"data":"x","encoding":"utf-8"}]'
    )
    out, err = run(
        f"flux kvs put --raw archive.main='{objects}'; mkdir in; flux archive extract -C in; echo $?", tmp_path
    )
    assert out == ["1"]
    assert "flux-archive: l/f: l leads out of " in err
    assert list((tmp_path / "outside").iterdir()) == []
