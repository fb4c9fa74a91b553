"""`headrace doctor`: one line a check, and what to do about a problem."""

from __future__ import annotations

import resource

import pytest

from headrace.cli import doctor


def test_a_sound_machine_has_no_problem_and_each_check_a_line(flux) -> None:
    outcome = flux("doctor")
    assert outcome.rc == 0, outcome.stdout
    rows = [line.split(maxsplit=2) for line in outcome.stdout.splitlines()]
    assert [row[1] for row in rows] == [name for name, _ in doctor._CHECKS]
    assert {row[0] for row in rows} <= {"ok", "note"}
    assert rows[-1][2] == "not in an instance (FLUX_URI is not set)"


@pytest.mark.parametrize(
    ("check", "change", "says"),
    [
        (doctor._platform, ("sys.platform", "plan9"), "this is plan9: brokers run on Linux only"),
        (doctor._python, ("sys.version_info", (3, 8, 2)), "Python 3.8.2: brokers need 3.10 or later"),
        (doctor._run_folder, ("os.environ", {"TMPDIR": "/x"}), "is not writable: set TMPDIR"),
        (doctor._open_files, ("resource.getrlimit", lambda _which: (256, 512)), "only 256 open files are allowed"),
    ],
)
def test_problems_say_what_would_be_right(monkeypatch, check, change, says) -> None:
    monkeypatch.setattr(*change)
    ((level, text),) = check()
    assert (level, says in text) == ("problem", True)


def test_a_folder_whose_sockets_would_have_too_long_paths_is_not_used(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("x" * 80)))
    ((level, text),) = doctor._run_folder()
    assert level == "note" and text.endswith("run directories go to /tmp")


def test_no_limit_on_open_files_is_none(monkeypatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (resource.RLIM_INFINITY,) * 2)
    assert doctor._open_files() == [("ok", "open files: unlimited")]


def test_an_instance_that_is_gone_is_a_problem(monkeypatch, capsys) -> None:
    monkeypatch.setenv("FLUX_URI", "local:///nowhere/local-0")
    assert doctor.main([]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("problem  instance     local:///nowhere/local-0: ")
