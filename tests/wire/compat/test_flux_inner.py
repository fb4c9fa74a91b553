"""`flux.core.inner`: names of job states and results, and their numbers."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from bindings import run


def test_states_and_results_have_names_in_four_forms():
    lines = run(
        """
        from flux.core.inner import raw
        for number in (1, 8, 16, 64, 3):
            print(*(raw.flux_job_statetostr(number, form).decode() for form in "LSls"))
        print(raw.flux_job_statetostr(16, b"S"), raw.flux_job_statetostr(16, None))
        for number in (1, 2, 4, 8, 0):
            print(*(raw.flux_job_resulttostr(number, form).decode() for form in "LSls"))
        """
    )
    assert lines == [
        "NEW N new n",
        "SCHED S sched s",
        "RUN R run r",
        "INACTIVE I inactive i",
        "(unknown) ? (unknown) ?",
        "b'R' b'RUN'",
        "COMPLETED CD completed cd",
        "FAILED F failed f",
        "CANCELED CA canceled ca",
        "TIMEOUT TO timeout to",
        "(unknown) ? (unknown) ?",
    ]


def test_names_are_put_into_an_array_as_numbers_and_wrong_ones_are_refused():
    lines = run(
        """
        import errno
        from flux.core.inner import ffi, raw
        states = ffi.new("flux_job_state_t [1]")
        for name in ("DEPEND", b"R", "cleanup", "PENDING", "RUNNING", "ACTIVE"):
            raw.flux_job_strtostate(name, states)
            print(states[0], end=" ")
        results = ffi.new("flux_job_result_t [1]")
        for name in ("CD", "FAILED", "to"):
            raw.flux_job_strtoresult(name, results)
            print(results[0], end=" ")
        print(len(states), results[0])
        for convert, name in ((raw.flux_job_strtostate, "X"), (raw.flux_job_strtoresult, "Failed")):
            try:
                convert(name, states)
            except OSError as exc:
                print(errno.errorcode[exc.errno])
        """
    )
    assert lines == ["2 16 32 14 48 62 1 2 8 1 8", "EINVAL", "EINVAL"]
