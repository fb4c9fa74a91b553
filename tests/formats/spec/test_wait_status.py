"""Wait statuses as exit codes, return codes and words."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from headrace.formats.spec.wait_status import exit_code, how_ended, returncode, strsignal


@pytest.mark.parametrize(
    ("status", "code", "negative", "text"),
    [
        (0, 0, 0, "Exit 0"),
        (3 << 8, 3, 3, "Exit 3"),
        (255 << 8, 255, 255, "Exit 255"),
        # A shell whose command was ended by SIGTERM, and a process that was ended by it.
        (143 << 8, 143, 143, "Exit 143"),
        (15, 143, -15, "Terminated"),
        # SIGSEGV with a core dump.
        (11 | 0x80, 139, -11, "Segmentation fault"),
    ],
)
def test_a_status_is_a_code_a_number_and_words(status: int, code: int, negative: int, text: str) -> None:
    assert (exit_code(status), returncode(status), how_ended(status)) == (code, negative, text)


@pytest.mark.parametrize("status", [*(code << 8 for code in range(256)), *range(1, 65)])
def test_the_return_code_is_python_s_own(status: int) -> None:
    assert returncode(status) == os.waitstatus_to_exitcode(status)


def test_the_exit_code_is_the_one_of_a_shell() -> None:
    shell = subprocess.run(["sh", "-c", "sh -c 'kill -9 $$'; exit $?"], check=False)
    assert shell.returncode == exit_code(signal.SIGKILL) == 137


def test_each_number_has_words() -> None:
    assert strsignal(signal.SIGHUP) == "Hangup"
    assert [strsignal(number) for number in (0, 32, 127)] == [f"Unknown signal {number}" for number in (0, 32, 127)]
