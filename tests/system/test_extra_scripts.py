"""FLUX_RC_EXTRA: scripts of sites and of other projects that run on every broker, before and after the program."""

from __future__ import annotations

from pathlib import Path

from instance import start


def script(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_the_scripts_of_all_folders_run_on_every_broker_in_the_order_of_their_names(tmp_path: Path) -> None:
    said = tmp_path / "said"
    script(tmp_path / "rc1.d" / "20-second", f"echo second >>{said}.$(flux getattr rank)")
    script(tmp_path / "rc1.d" / "10-first", f"echo first >>{said}.$(flux getattr rank)")
    script(tmp_path / "rc3.d" / "last", f"echo last >>{said}.$(flux getattr rank)")
    done = start("-s2", "cat", f"{said}.0", f"{said}.1", FLUX_RC_EXTRA=f"/nosuch:{tmp_path}:")
    assert (done.rc, done.out.split(), done.left) == (0, ["first", "second"] * 2, []), done.err
    assert [Path(f"{said}.{rank}").read_text().split()[-1] for rank in (0, 1)] == ["last", "last"]


def test_a_script_that_fails_ends_the_instance_but_not_the_scripts_after_it(tmp_path: Path) -> None:
    script(tmp_path / "rc1.d" / "1", "exit 3")
    script(tmp_path / "rc1.d" / "2", "echo next")
    done = start("echo", "program", FLUX_RC_EXTRA=str(tmp_path))
    assert (done.rc, done.out, done.left) == (3, "next\n", []), done.err
    assert f"rc1.0: {tmp_path}/rc1.d/1 Exited (rc=3)" in done.err


def test_a_script_of_ones_own_stands_in_for_them(tmp_path: Path) -> None:
    script(tmp_path / "rc1.d" / "extra", "echo extra")
    done = start("-Sbroker.rc1_path=echo own", "-Sbroker.rc3_path=", "echo program", FLUX_RC_EXTRA=str(tmp_path))
    assert (done.rc, done.out) == (0, "own\nprogram\n"), done.err
