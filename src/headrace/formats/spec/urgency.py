"""Urgencies and priorities of jobs (RFC 30)."""

from __future__ import annotations

# An urgency is an integer from URGENCY_HOLD (the job is held) to URGENCY_EXPEDITE (the job precedes all others).
URGENCY_HOLD, URGENCY_DEFAULT, URGENCY_EXPEDITE = 0, 16, 31
PRIORITY_MAX = 0xFFFFFFFF


def priority_of(urgency: int) -> int:
    """Return the priority for an urgency: the same number, but PRIORITY_MAX for URGENCY_EXPEDITE."""
    return PRIORITY_MAX if urgency == URGENCY_EXPEDITE else urgency
