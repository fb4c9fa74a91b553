"""Urgencies and priorities of jobs (RFC 30)."""

from __future__ import annotations

# An urgency is an integer from URGENCY_HOLD, which holds the job, to URGENCY_EXPEDITE, which puts it before all others.
URGENCY_HOLD, URGENCY_DEFAULT, URGENCY_EXPEDITE = 0, 16, 31
PRIORITY_MAX = 0xFFFFFFFF


def priority_of(urgency: int) -> int:
    """Return the priority of an urgency: the same number, and PRIORITY_MAX for URGENCY_EXPEDITE."""
    return PRIORITY_MAX if urgency == URGENCY_EXPEDITE else urgency
