"""Fair share: who has had much of the machine lately goes behind who has had little.

Usage counts less the longer ago it was: half after each half-life. A user's factor is 2^(-usage / share), both as parts
of the whole, which is 1 for whoever has used nothing, 1/2 for whoever has used just his share, and near 0 for whoever
has used much more (the classic formula of multifactor priorities). Urgency stays in front: the factor orders the jobs
of one urgency. Nothing here knows a queue: a caller charges what jobs used and submits and reprioritizes with the
priorities it is told, so the same serves the simulator and a service beside a job manager.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.formats.spec.urgency import URGENCY_EXPEDITE, URGENCY_HOLD

# Priorities between one urgency and the next.
STEPS = 100_000


class FairShare:
    """Usage by user. `half_life` is in seconds; `shares` says what parts users should have, 1 for those it leaves out.

    Raises ValueError for a half-life or a share that is not positive.
    """

    def __init__(self, half_life: float, shares: Mapping[str, float] | None = None) -> None:
        if half_life <= 0:
            raise ValueError(f"fair share: the half-life must be a positive number of seconds, not {half_life}")
        self.half_life = half_life
        self._shares = dict(shares or {})
        for user, share in self._shares.items():
            if share <= 0:
                raise ValueError(f"fair share: the share of {user!r} must be positive, not {share}")
        self._usage: dict[str, float] = {}
        # The moment that `_usage` is told for, and its sum.
        self._at = 0.0
        self._total = 0.0

    def charge(self, user: str, amount: float, now: float) -> None:
        """A user has used so much (core-seconds, say) by `now` (seconds)."""
        self._settle(now)
        self._usage[user] = self._usage.get(user, 0.0) + amount
        self._total += amount

    def factor(self, user: str) -> float:
        """Between 0 and 1, 1 for who has used nothing. It changes as usage is charged, not as time goes by."""
        used = self._usage.get(user, 0.0)
        if not used or not self._total:
            return 1.0
        known = self._usage.keys() | self._shares.keys()
        whole = sum(self._shares.get(one, 1.0) for one in known)
        part = self._shares.get(user, 1.0) / whole
        return float(2 ** -(used / self._total / part))

    def priority(self, urgency: int, user: str) -> int:
        """The priority of a user's job: by urgency, then by factor; held and expedited jobs are not weighed."""
        if urgency in (URGENCY_HOLD, URGENCY_EXPEDITE):
            return urgency * STEPS
        return urgency * STEPS + int(self.factor(user) * (STEPS - 1))

    def _settle(self, now: float) -> None:
        """Let what was used fade until `now`; all of it alike, so the factors stay as they are."""
        if now <= self._at:
            return
        fade = 0.5 ** ((now - self._at) / self.half_life)
        self._at = now
        self._usage = {user: used * fade for user, used in self._usage.items() if used * fade >= 1e-6}
        self._total = sum(self._usage.values())
