from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.submit import multi_prog
from headrace.cli.submit.multi_prog import Programs

FILE = ["# who does what\n", "* other %t\n", "4-6\thost name\n", "1,7 one%t\n", "\n", "[0,2-3] 'of %o' %o%t # last\n"]


@pytest.mark.parametrize(
    ("rank", "command"),
    [
        (0, ["of 0", "00"]),
        (1, ["one1"]),
        (2, ["of 1", "12"]),
        (3, ["of 2", "23"]),
        (5, ["host", "name"]),
        (7, ["one7"]),
        (8, ["other", "8"]),
    ],
)
def test_a_rank_has_the_command_of_its_line(rank, command):
    assert Programs("f", FILE).line_of(rank).command_of(rank) == command


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("0 a 'b c' \"d e\" f\\ g", ["a", "b c", "d e", "f g"]),
        ("0 a;b", ["a", ";", "b"]),
        ("0 a 'it\\'s'", ["a", "it's"]),
        ("0 %%t %o%o %x", ["%0", "00", "%x"]),
        ("0 -x=/y/z* ''", ["-x=/y/z*", ""]),
    ],
)
def test_words_are_those_of_a_shell(text, command):
    assert Programs("f", [text]).line_of(0).command_of(0) == command


def test_the_first_line_that_names_a_rank_and_the_last_for_all_others_count():
    programs = Programs("f", ["0-1 first", "1-2 second", "* third", "* fourth"])
    assert [programs.line_of(rank).command for rank in range(4)] == [["first"], ["first"], ["second"], ["fourth"]]


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (["0 a", "1-0 b"], "f: line 2: invalid idset: 1-0"),
        (["", "all a"], "f: line 2: invalid idset: all"),
        (['0 "a b\n'], "f: line 1: '0 \"a b': No closing quotation"),
        (["0 a \\"], "f: line 1: '0 a \\': No escaped character"),
        (["0 a", "1-3"], "f: line 2: no command after 1-3"),
        (["0 a", "*  # none"], "f: line 2: no command after *"),
        (["1 a"], "f: No matching line for rank 0"),
        ([], "f: No matching line for rank 0"),
    ],
)
def test_an_error_names_the_file_and_the_line(lines, error):
    with pytest.raises(CommandError) as caught:
        Programs("f", lines).line_of(0)
    assert caught.value.text == error


@pytest.mark.parametrize(
    ("rank", "error"),
    [("", "FLUX_TASK_RANK not found or invalid"), ("x", "FLUX_TASK_RANK not found or invalid")],
)
def test_the_rank_comes_from_the_environment(rank, error, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = tmp_path / "f"
    config.write_text("0 true\n")
    monkeypatch.setenv("FLUX_TASK_RANK", rank)
    with pytest.raises(CommandError, match=error):
        multi_prog.main([str(config)])


@pytest.mark.parametrize(("mode", "status", "why"), [(None, 127, "No such file"), (0o600, 126, "Permission denied")])
def test_a_program_that_cannot_be_run_is_named_with_its_line(mode, status, why, tmp_path, monkeypatch):
    program = tmp_path / "program"
    if mode is not None:
        program.write_text("")
        program.chmod(mode)
    (tmp_path / "f").write_text(f"# one\n0 {program}\n")
    monkeypatch.setenv("FLUX_TASK_RANK", "0")
    with pytest.raises(CommandError, match=f"f: line 2: .*program: {why}") as caught:
        multi_prog.main([str(tmp_path / "f")])
    assert caught.value.status == status


def test_bytes_that_are_no_text_reach_the_program(flux, tmp_path):
    (tmp_path / "f").write_bytes(b"0-1 sh -c 'printf %s \"$0\" | od -An -tx1' '\xff %o'\n")
    done = flux("multi-prog", "f", FLUX_TASK_RANK="1")
    assert (done.rc, done.stdout.split(), done.stderr) == (0, ["ff", "20", "31"], "")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CommandError, match=r"^No such file or directory: '.*/none'$"):
        multi_prog.main([str(tmp_path / "none")])
