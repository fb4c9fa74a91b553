"""Starting one process: which program, where, within which limits, and what a failure says."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.engine.process import spawn

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def output_of(argv: Sequence[str], **options: object) -> str:
    """Standard output of a process that is spawned with `options`."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = spawn.spawn(list(argv), ENV, [(writer, 1)], **options)  # type: ignore[arg-type]
    os.close(writer)
    with open(reader) as stream:
        text = stream.read()
    assert os.waitpid(pid, 0)[1] == 0
    return text.strip()


def script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_program_is_found_along_the_path_it_is_given(tmp_path: Path) -> None:
    here = script(tmp_path / "find-me", "#!/bin/sh\n")
    assert spawn.find_program("find-me", f"/nowhere:{tmp_path}") == str(here)
    assert spawn.find_program("./as/it/is", "/nowhere") == "./as/it/is"


@pytest.mark.parametrize(("mode", "number"), [(0o644, errno.EACCES), (None, errno.ENOENT)])
def test_what_cannot_be_run_says_why(tmp_path: Path, mode: int | None, number: int) -> None:
    if mode is not None:
        script(tmp_path / "not-to-run", "", mode)
    with pytest.raises(OSError) as failure:
        spawn.spawn(["not-to-run"], {"PATH": str(tmp_path)}, ())
    assert failure.value.errno == number


def test_each_start_searches_for_its_program_anew(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("early", "late")]
    path = ":".join(map(str, folders))
    for folder in folders:
        folder.mkdir()
    late = script(folders[1] / "new-one", "")
    assert spawn.find_program("new-one", path) == str(late)
    early = script(folders[0] / "new-one", "")
    assert spawn.find_program("new-one", path) == str(early), "installed into an earlier folder"
    early.chmod(0o644)
    assert spawn.find_program("new-one", path) == str(late), "no program any more"
    early.chmod(0o755)
    late.unlink()
    early.rename(late)
    assert spawn.find_program("new-one", path) == str(late), "moved"


@pytest.mark.parametrize("path", ["bin:/nowhere", ":/nowhere", "/nowhere:./bin", "/nowhere::"])
def test_a_relative_folder_is_that_of_the_present_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "bin").mkdir(parents=True)
    for place in ("a", "a/bin"):
        script(tmp_path / place / "here", "")
    monkeypatch.chdir(tmp_path / "a")
    assert os.path.isfile(spawn.find_program("here", path))
    monkeypatch.chdir(tmp_path / "b")
    with pytest.raises(FileNotFoundError):
        spawn.find_program("here", path)


def test_a_script_without_an_interpreter_line_is_the_shells(tmp_path: Path) -> None:
    path = script(tmp_path / "plain", "echo of the shell\n")
    assert output_of([str(path)]) == "of the shell"


def test_it_leads_a_group_of_its_own() -> None:
    pid, group = output_of(["sh", "-c", "echo $$; ps -o pgid= -p $$"]).split()
    assert pid == group


def test_it_is_bound_to_its_processors_from_its_first_instruction_on() -> None:
    own = os.sched_getaffinity(0)
    for cpu in [*own, *own]:
        seen = output_of(["grep", "Cpus_allowed_list", "/proc/self/status"], cpus=frozenset({cpu}))
        assert seen.split() == ["Cpus_allowed_list:", str(cpu)]
    assert output_of(["nproc"]) == str(len(own))
    assert os.sched_getaffinity(0) == own


def test_soft_limits_hold_for_the_child_alone() -> None:
    before = resource.getrlimit(resource.RLIMIT_CORE)
    limits = spawn.limits_that_differ({"core": 0, "nosuch": 1})
    if before[0] != 0:
        assert limits == {resource.RLIMIT_CORE: 0}
    spawn.limits_that_differ({"nofile": 64})
    assert output_of(["sh", "-c", "ulimit -n"], limits={resource.RLIMIT_NOFILE: 64}) == "64"
    assert resource.getrlimit(resource.RLIMIT_CORE) == before
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] != 64


_BUSY_FOR_A_SECOND = """
import os, resource, time
from headrace.engine.process import spawn
while time.process_time() < 1.2:
    pass
before = resource.getrlimit(resource.RLIMIT_CPU)
limits = spawn.limits_that_differ({"cpu": 1})
script = "until [ $(ulimit -t) = 1 ]; do :; done; ulimit -t"
pid = spawn.spawn(["sh", "-c", script], os.environ, (), limits=limits)
assert os.waitpid(pid, 0)[1] == 0
assert resource.getrlimit(resource.RLIMIT_CPU) == before
"""


def test_a_limit_of_processor_time_that_this_process_has_used_up_does_not_end_it() -> None:
    done = subprocess.run([sys.executable, "-c", _BUSY_FOR_A_SECOND], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


@pytest.mark.parametrize(("name", "flag"), [("as", "-v"), ("data", "-d")])
def test_a_limit_of_memory_below_what_this_process_uses_does_not_prevent_the_start(name: str, flag: str) -> None:
    limits = spawn.limits_that_differ({name: 10 << 20})
    # The child starts without it and gets it at once.
    script = f"until [ $(ulimit {flag}) = 10240 ]; do :; done; ulimit {flag}"
    assert output_of(["sh", "-c", script], limits=limits) == "10240"


def test_limits_that_leave_this_process_room_are_there_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(resource, "prlimit")
    limits = spawn.limits_that_differ({"cpu": 1 << 20, "as": 1 << 42, "data": 1 << 41})
    told = output_of(["sh", "-c", "ulimit -t; ulimit -v; ulimit -d"], limits=limits)
    assert told.split() == [str(1 << 20), str(1 << 32), str(1 << 31)]


def test_descriptors_beyond_the_limit_of_the_child_reach_it() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    spawn.limits_that_differ({"nofile": 10})
    writers = [os.dup(2) for _ in range(10)]
    try:
        assert output_of(["sh", "-c", "ulimit -n"], limits={resource.RLIMIT_NOFILE: 10}) == "10"
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
    finally:
        for fd in writers:
            os.close(fd)


def test_a_soft_limit_above_the_hard_one_is_the_hard_one() -> None:
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = spawn.limits_that_differ({"nofile": resource.RLIM_INFINITY})
    assert wanted.get(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)[0]) == hard
