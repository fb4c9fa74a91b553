"""People at terminals: the shell of `flux alloc` has job control, sizes and interrupts arrive where they should."""

from __future__ import annotations

import sys

from instance import FLUX
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
