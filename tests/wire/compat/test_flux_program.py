"""What programs are made with: `flux.util.CLIMain`, `help_formatter`, and how `flux.job._utils` reads values."""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys

import pytest

from headrace.wire.client.installation import BINDINGS

sys.path.insert(0, BINDINGS)
from flux.job._utils import decode_duration, decode_signal
from flux.util import help_formatter

PROGRAM = """
import logging
import flux
LOGGER = logging.getLogger("tool")
@flux.util.CLIMain(LOGGER)
def main():
    {body}
print("not reached")
"""


def run(body: str, **env: str) -> tuple[int, str, str]:
    code = PROGRAM.format(body=body)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": BINDINGS, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ("pass", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("LOGGER.warning('careful')", 0, "tool: WARNING: careful\n"),
        ("LOGGER.debug('unseen')", 0, ""),
        ("raise ValueError('seven is not even')", 1, "tool: ERROR: seven is not even\n"),
        ("raise KeyboardInterrupt", 130, None),
        ("open('no/such')", 1, "tool: ERROR: No such file or directory: 'no/such'\n"),
        ("raise OSError(22, 'that cannot be')", 1, "tool: ERROR: that cannot be\n"),
    ],
)
def test_main_runs_at_once_and_its_end_is_the_programs(body: str, status: int, told: str | None) -> None:
    rc, out, err = run(body)
    assert (rc % 256 if rc >= 0 else 128 - rc, out) == (status, "")
    if told is not None:
        assert err == told


def test_a_debugging_program_shows_where_it_failed() -> None:
    rc, _, err = run("raise ValueError('seven')", FLUX_PYCLI_LOGLEVEL="10")
    assert rc == 1
    assert err.startswith("tool: ERROR: seven\nTraceback ")


def test_help_shows_the_value_of_an_option_once() -> None:
    parser = argparse.ArgumentParser(
        "tool", formatter_class=help_formatter(argwidth=30, raw_description=True), description="one\ntwo"
    )
    parser.add_argument("-s", "--size", metavar="N", help="brokers")
    parser.add_argument("--color", nargs="?", metavar="WHEN", help="colors")
    parser.add_argument("-q", metavar="NAME", help="queue")
    parser.add_argument("-v", "--verbose", action="store_true", help="more")
    text = parser.format_help()
    assert "\none\ntwo\n" in text
    shown = [tuple(line.rsplit(None, 1)) for line in text.splitlines() if line.startswith("  -")]
    assert [(names.strip(), words) for names, words in shown if words != "exit"] == [
        ("-s, --size=N", "brokers"),
        ("--color[=WHEN]", "colors"),
        ("-q NAME", "queue"),
        ("-v, --verbose", "more"),
    ]


@pytest.mark.parametrize(
    ("value", "seconds"), [("1m", 60.0), (90, 90.0), (1.5, 1.5), ("100ms", 0.1), ("inf", math.inf)]
)
def test_durations_are_text_or_numbers(value: str | float, seconds: float) -> None:
    assert decode_duration(value) == seconds


@pytest.mark.parametrize("value", ["soon", -1, "-1s", None])
def test_what_is_no_duration_is_refused(value: str | float) -> None:
    with pytest.raises(ValueError, match="duration"):
        decode_duration(value)


@pytest.mark.parametrize("value", ["USR1", "SIGUSR1", 10, "10", "usr1"])
def test_signals_have_names_and_numbers(value: str | int) -> None:
    assert decode_signal(value) == 10


@pytest.mark.parametrize("value", ["USRX", 0, -1, 500, "", "1.5"])
def test_what_is_no_signal_is_refused(value: str | int) -> None:
    with pytest.raises(ValueError, match="signal"):
        decode_signal(value)


def test_the_bare_package_has_what_programs_take_from_it() -> None:
    code = "import flux; print(*(getattr(flux, n).__name__ for n in 'constants core future message rpc util'.split()))"
    env = {**os.environ, "PYTHONPATH": BINDINGS}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [f"flux.{name}" for name in ("constants", "core", "future", "message", "rpc", "util")]
