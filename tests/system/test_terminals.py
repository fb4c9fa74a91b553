"""People at terminals: the shell of `flux alloc` has job control, sizes and interrupts arrive where they should."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from instance import FLUX, clean_env, start
from terminal import terminal

# A shell that is interrupted while it forks may go on; this does not fork. What it prints differs from its echo, and
# when it does it has the terminal. Its handler must not print while a print is under way.
WAITING = (
    "import os, signal, time; signal.signal(signal.SIGCONT, lambda *_: os.write(1, b'ag' + b'ain')); "
    "print('beg' + 'un', flush=True); time.sleep(100); print('nev' + 'er')"
)
WAIT = f'{sys.executable} -c "{WAITING}"\n'


def test_the_shell_of_flux_alloc_controls_its_terminal(tmp_path):
    (tmp_path / ".bashrc").write_text("PS1='ready> '\n")
    with terminal(FLUX, "start", FLUX, "alloc", "-n1", SHELL="/bin/bash", HOME=str(tmp_path), TERM="dumb") as screen:
        assert "no job control" not in screen.expect("ready> ")
        screen.type("tty\n")
        screen.expect("/dev/pts/")
        screen.expect("ready> ")
        screen.type(WAIT)
        screen.expect("begun")
        screen.type("\x03")
        screen.expect("KeyboardInterrupt")
        screen.expect("ready> ")
        screen.type(WAIT)
        screen.expect("begun")
        screen.type("\x1a")
        screen.expect("ready> ")
        screen.type("jobs -l\n")
        screen.expect("Stopped")
        screen.expect("ready> ")
        screen.type("fg\n")
        screen.expect("again")
        screen.type("\x03")
        screen.expect("ready> ")
        screen.resize(33, 77)
        screen.type("until stty size | grep '33 7''7'; do sleep 0.05; done\n")
        screen.expect("33 77")
        screen.expect("ready> ")
        screen.type("exit 3\n")
        assert screen.wait() == 3


def test_a_command_of_flux_alloc_is_interrupted_from_the_terminal():
    with terminal(FLUX, "start", FLUX, "alloc", "-n1", sys.executable, "-c", WAITING) as screen:
        screen.expect("begun")
        screen.type("\x03")
        assert screen.wait() == 130
        assert "KeyboardInterrupt" in screen.text
        assert "never" not in screen.text


def test_a_job_keeps_its_terminal_until_somebody_has_seen_it():
    job = "sh -c 'echo out; tty >/dev/null && echo at a terminal; exit 3'"
    with terminal(FLUX, "start", "bash", "--norc", TERM="dumb", PS1="ready> ") as screen:
        screen.expect("ready> ")
        screen.type(f"id=$(flux submit -o pty.interactive {job}); flux job wait-event $id start; sleep .5; flux jobs\n")
        screen.expect(" R ")
        screen.expect("ready> ")
        screen.type("flux job attach $id; echo status=$?\n")
        screen.expect("out\r\nat a terminal\r\n")
        screen.expect("status=3")
        # Nobody has to be there again.
        screen.type("flux job attach $id; echo status=$?\n")
        screen.expect("status=3")
        screen.type("exit\n")
        assert screen.wait() == 0


PIPES = """
set -e
id=$(flux submit -o pty.interactive sh -c 'echo 1; tr a-z A-Z')
printf 'line\\npart' | flux job attach $id | grep -o '[A-Z]*'
flux run -o pty.interactive seq 50000 </dev/null | md5sum
seq 50000 | sed 's/$/\\r/' | md5sum
printf 'a' | flux run -n2 -o pty.interactive sh -c 'cat >/dev/null; tty || true'
id=$(flux submit -o pty.interactive -o pty.capture echo captured)
flux job attach $id; flux job attach $id; flux job attach -r $id || true
"""


def test_scripts_and_pipes_see_what_terminals_do():
    done = start("sh", "-c", PIPES)
    line, part, printed, wanted, *rest = done.out.split("\n")
    assert (line, part, printed) == ("LINE", "PART", wanted)
    first, second, *rest = (text.strip() for text in rest)
    # A terminal may echo what is typed before it comes to that.
    assert {"/dev/pts" in first, "/dev/pts" in second} == {True, False}, done.out
    assert rest == ["captured", "captured", ""]
    assert done.err == "flux-job: Cannot connect to pty in readonly mode\n"


SHELL_KILLED = """
id=$(flux submit -o pty.interactive sh -c 'read line; kill -9 $PPID; sleep 60')
echo go | flux job attach $id
"""


def test_who_is_attached_is_told_that_the_shell_with_the_terminal_is_gone():
    done = start("sh", "-c", SHELL_KILLED)
    assert done.rc == 137
    assert done.err.count("flux-job: remote pty disappeared\n") == 1


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_an_instance_with_a_terminal_that_nobody_has_seen_ends_when_it_is_told_to(signum):
    script = "id=$(flux submit -o pty.interactive echo lost); flux job wait-event $id start >&2; echo up; exec sleep 60"
    argv = [FLUX, "start", "sh", "-c", script]
    with subprocess.Popen(argv, env=clean_env(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(signum)
        assert process.wait(60) == 128 + signum
