"""`flux top` on real terminals: what it shows, keys, sizes, and that it leaves the terminal as it was."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from instance import FLUX, start
from terminal import Terminal, terminal

# A job and an instance with a job of its own run; one job waits, one has succeeded, one has failed.
_JOBS = (
    "flux run true; flux run false; flux submit -n1 --job-name=lone sleep inf; "
    "flux alloc -n1 --bg --job-name=inst >id; "
    "flux proxy $(cat id) flux submit --job-name=deep sleep inf; flux submit --urgency=hold true; "
)
_SHOWN = ("1 pending", "2 running", "1 complete, ", "1 failed", "1/2]", "lone", "inst")


@contextlib.contextmanager
def at_terminal(folder: Path, script: str, *options: str, **env: str) -> Iterator[Terminal]:
    """A script in an instance of two brokers on a terminal; it prints `ended STATUS` of its last command."""
    (folder / "script").write_text(f"cd {folder}; stty rows 24 cols 80; stty -g >before; {script}\n")
    # The broker passes an interrupt of the terminal on to its program, so one may come late and end stty.
    ending = """echo "ended $?"; trap '' INT; test "$(stty -g)" = "$(cat before)" && echo "as before\""""
    with (folder / "script").open("a") as file:
        file.write(ending + "\n")
    command = (FLUX, "start", "--test-size=2", *options, "sh", str(folder / "script"))
    with terminal(*command, TERM="xterm", **env) as term:
        yield term


def leaves_all_as_before(term: Terminal, status: int) -> None:
    term.expect(f"ended {status}")
    term.expect("as before")
    assert term.wait() == 0


def test_keys_lead_through_jobs_and_into_an_instance(tmp_path):
    with at_terminal(tmp_path, _JOBS + "flux top") as term:
        shown = term.redrawn(*_SHOWN)
        assert "size: 2" in shown and "depth" not in shown and "QUEUE" not in shown
        term.type("d")
        term.redrawn("2 inactive")
        # From no job to the first, which is the newest, on to the last, and past it to the first again.
        term.type("jjj\n")
        assert "lone" not in term.redrawn("depth: 1", "1 running", "deep")
        term.type("q")
        term.redrawn("2 inactive", "lone")
        # Up from there, and past the first job to the last, which is no instance.
        term.type("k\n")
        term.redrawn("2 inactive", "lone")
        term.type("\x1bOA\r")
        term.redrawn("depth: 1")
        term.type("qq")
        leaves_all_as_before(term, 0)


def test_a_terminal_may_have_any_size_and_change_it(tmp_path):
    with at_terminal(tmp_path, _JOBS + "flux top") as term:
        term.redrawn(*_SHOWN)
        for rows, columns in ((1, 1), (2, 200), (50, 3), (7, 61), (1, 1)):
            term.resize(rows, columns)
            term.type("jk\f")
        term.resize(40, 120)
        term.redrawn(*_SHOWN, "RUNTIME NAME")
        term.type("q")
        leaves_all_as_before(term, 0)


@pytest.mark.parametrize(("number", "status"), [(0, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_it_and_the_terminal_is_as_before(number, status, tmp_path):
    # The shell, which would end by the interrupt as well, ignores it.
    with at_terminal(tmp_path, "trap : INT; sh -c 'echo $$ >pid; exec flux top'") as term:
        term.redrawn("0 running")
        if number:
            os.kill(int((tmp_path / "pid").read_text()), number)
        else:
            term.type("\x03")
        leaves_all_as_before(term, status)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_no_further_signal_keeps_the_terminal_from_being_given_back(number, tmp_path):
    with at_terminal(tmp_path, "sh -c 'echo $$ >pid; exec flux top'") as term:
        term.redrawn("0 running")
        pid = int((tmp_path / "pid").read_text())
        with contextlib.suppress(ProcessLookupError):
            while True:
                os.kill(pid, number)
        leaves_all_as_before(term, 128 + number)


# An instance that ends when the file `end` is there.
_ENDING = (
    "flux submit -n1 --job-name=short flux start sh -c 'until test -e end; do sleep .02; done' >id; "
    "flux uri --wait $(cat id) >uri; "
)


def test_an_instance_that_ends_leads_back_to_the_one_around_it(tmp_path):
    with at_terminal(tmp_path, _ENDING + "flux top") as term:
        term.redrawn("1 running", "short")
        term.type("j\n")
        term.redrawn("depth: 1", "0 running")
        (tmp_path / "end").touch()
        assert "depth" not in term.redrawn("0 running", "1 complete")
        term.type("q")
        leaves_all_as_before(term, 0)


def test_the_end_of_the_instance_it_was_started_for_ends_it(tmp_path):
    with at_terminal(tmp_path, _ENDING + "flux top $(cat id)") as term:
        term.redrawn("depth: 1", "0 running")
        (tmp_path / "end").touch()
        term.expect("flux-top: lost connection to Flux: ")
        leaves_all_as_before(term, 1)


@pytest.mark.parametrize(
    ("line", "status", "error"),
    [
        ("flux top </dev/null", 1, "flux-top: stdin is not a terminal"),
        ("flux top >/dev/null", 1, "flux-top: stdout is not a terminal"),
        ("TERM=dumb flux top", 1, "flux-top: terminal does not support required capabilities"),
        ("TERM=nosuch flux top", 1, "flux-top: terminal does not support required capabilities"),
        ("FLUX_URI=noturi flux top", 1, "flux-top: error connecting to Flux: "),
        ("flux top baduri", 1, "flux-top: failed to resolve target to a Flux URI"),
        ("flux top 12345", 1, "jobid 12345 not found"),
        ("flux top $(flux submit --wait true)", 1, "is not running"),
        ("flux top --color=foo", 1, "flux-top: Invalid argument to --color: foo"),
        ("flux top -q foobar", 1, "flux-top: queue foobar not configured"),
        ("flux top a b", 1, "Usage: flux-top [OPTIONS] [TARGET]"),
    ],
)
def test_what_cannot_be_shown_is_said(line, status, error, tmp_path):
    with at_terminal(tmp_path, line) as term:
        term.expect(error)
        term.expect(f"ended {status}")


_QUEUES = (
    "[queues.one]\nrequires=['one']\n[queues.two]\nrequires=['two']\n[[resource.config]]\nhosts='a,b'\ncores='0-1'\n"
    + "".join(
        f"[[resource.config]]\nhosts='{host}'\nproperties=['{queue}']\n" for host, queue in (("a", "one"), ("b", "two"))
    )
)


def test_queues_are_chosen_by_option_and_keys_and_dumped(tmp_path):
    (tmp_path / "config.toml").write_text(_QUEUES)
    script = (
        "flux queue start --all --quiet; flux submit -q one --job-name=first sleep inf; "
        "flux submit -q two -n2 --job-name=second sleep inf; "
        "flux top; for options in '' --queue=one '-q two --color' '--color=never'; do "
        "flux top $options --test-exit --test-exit-dump=dump; sed 's/ƒ[^ ]*/ID/; s/ [^ ]*s \\([a-z]*\\)$/ \\1/; "
        "s/ [^ ]* R / /' dump >>dumps; echo >>dumps; done"
    )
    with at_terminal(tmp_path, script, "--test-hosts=a,b", f"--config-path={tmp_path / 'config.toml'}") as term:
        term.redrawn("QUEUE", "first", "second", "2 running")
        term.type("l")
        assert "second" not in term.redrawn("first", "1 running", "1/2]")
        term.type("\x1bOC")
        assert "first" not in term.redrawn("second", "1 running", "2/2]")
        term.type("hhh")
        assert "first" not in term.redrawn("second")
        term.type("\x1bOD\x1bOD")
        term.redrawn("QUEUE", "first", "second")
        term.type("q")
        leaves_all_as_before(term, 0)
    dumps = (tmp_path / "dumps").read_text().split("\n\n")
    ended = "0 complete\n0 failed\n"
    both = f"0 pending\n2 running\n{ended}nodes 2/2\ncores 3/4\ngpus 0/0\nID two 2 1 second\nID one 1 1 first"
    one = f"0 pending\n1 running\n{ended}nodes 1/1\ncores 1/2\ngpus 0/0\nID one 1 1 first"
    two = f"0 pending\n1 running\n{ended}nodes 1/1\ncores 2/2\ngpus 0/0\nID two 2 1 second"
    assert dumps == [both, one, two, both, ""]


def test_help_names_its_options_without_a_terminal():
    done = start("flux top --help")
    assert "Usage: flux-top [OPTIONS] [TARGET]" in done.err
    assert done.rc == 0
