"""Output that does not fit where it was sent: who asked for the file learns it, wherever he looks."""

from __future__ import annotations

import os
import subprocess

import pytest
from instance import start

LOST = "error writing {}: No space left on device: output is lost"


def test_a_job_whose_output_is_lost_says_so_and_fails():
    script = """
    flux run --output=/dev/full -n2 echo x; echo $?
    id=$(flux submit --error=/dev/full sh -c 'echo x >&2; echo out')
    flux job attach $id 2>/dev/null; flux job status $id; echo $?
    flux job eventlog $id | grep exception | cut -d' ' -f2-
    """
    done = start("sh", "-c", script)
    lost = LOST.format("/dev/full")
    assert done.out == f'1\nout\n1\nexception type="exec" severity=1 note="{lost}" userid={os.getuid()}\n'
    assert f"flux-shell[0]: ERROR: {lost}\n" in done.err


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a file system")
def test_what_fits_on_a_full_disk_is_there_and_the_rest_is_told(tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(full)], check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted")
    try:
        command = ["sh", "-c", "seq 100000; exit 3"]
        # The errors' own way: where stderr shares the files, word of the file lost first may stand in the other.
        ways = [f"--output={full}/{{{{taskid}}}}", "-ooutput.stderr.type=kvs"]
        done = start("flux", "run", "-n2", *ways, *command)
        files = [full / "0", full / "1"]
        whole = "".join(f"{number}\n" for number in range(1, 100001))
        assert all(whole.startswith(path.read_text()) for path in files)
        assert sum(path.stat().st_size for path in files) == 64 << 10
        assert done.rc == 3
        assert all(LOST.format(path) in done.err for path in files)
    finally:
        subprocess.run(["umount", str(full)], check=True)
