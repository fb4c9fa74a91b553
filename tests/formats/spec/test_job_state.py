"""States of jobs by name, and the results that follow from how jobs end (RFC 21)."""

from __future__ import annotations

import pytest

from headrace.formats.spec import job_state
from headrace.formats.spec.job_state import CANCELED, COMPLETED, FAILED, TIMEOUT, result_of


def test_states_with_names_are_those_of_the_masks_and_inactive() -> None:
    assert sum(job_state.STATE_BITS.values()) == job_state.ACTIVE | job_state.INACTIVE
    assert all(mask & job_state.ACTIVE == mask for mask in job_state.STATE_MASKS.values())


@pytest.mark.parametrize(
    ("fatal", "status", "result"),
    [
        (None, 0, COMPLETED),
        (None, 1 << 8, FAILED),
        (None, 15, FAILED),
        # It did not run.
        (None, None, FAILED),
        ("cancel", None, CANCELED),
        ("timeout", 142 << 8, TIMEOUT),
        ("exec", 0, FAILED),
        # The exception came after the end of its tasks.
        ("cancel", 0, CANCELED),
        ("", 0, FAILED),
    ],
)
def test_an_exception_that_ends_a_job_decides_its_result(fatal: str | None, status: int | None, result: int) -> None:
    assert result_of(fatal, status) == result
