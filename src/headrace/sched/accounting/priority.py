"""The priority of a job: a weighted sum of factors (RFC 30 has the range)."""

from __future__ import annotations

import msgspec

from headrace.formats.spec.urgency import PRIORITY_MAX, URGENCY_DEFAULT, URGENCY_EXPEDITE, URGENCY_HOLD


class Weights(msgspec.Struct, frozen=True):
    """The weight of each factor."""

    fairshare: int = 100_000
    queue: int = 10_000
    bank: int = 0
    urgency: int = 1_000


def job_priority(weights: Weights, fairshare: float, queue: int, bank: float, urgency: int) -> int:
    """The priority for the factors of a job: their weighted sum, rounded half away from zero, at least 0.

    A job of urgency 0 is held (priority 0). One of urgency 31 precedes all others: no other reaches its priority.
    """
    if urgency == URGENCY_HOLD:
        return 0
    if urgency == URGENCY_EXPEDITE:
        return PRIORITY_MAX
    total = (
        weights.fairshare * fairshare
        + weights.queue * queue
        + weights.bank * bank
        + weights.urgency * (urgency - URGENCY_DEFAULT)
    )
    if not total > 0:
        # Also the sum of two infinite terms.
        return 0
    if total >= PRIORITY_MAX - 1:
        return PRIORITY_MAX - 1
    whole = int(total)
    return whole + 1 if total - whole >= 0.5 else whole
