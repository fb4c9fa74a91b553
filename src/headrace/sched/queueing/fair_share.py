"""Fair share: users who have used little recently go before users who have used much.

Usage decays with a half-life. A user's factor is 2^(-usage / share), with both as fractions of the total. It is 1 for a
user who has used nothing, 1/2 for one who has used exactly the share, and near 0 for one who has used much more (the
classic formula of multifactor priorities). Urgency goes first: the factor orders the jobs of one urgency. This module
knows no queue: a caller charges the usage of jobs, and submits and reprioritizes jobs with the returned priorities. So
it serves both the simulator and a service beside a job manager.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.formats.spec.urgency import URGENCY_EXPEDITE, URGENCY_HOLD

# Priorities between one urgency and the next.
STEPS = 100_000


class FairShare:
    """Usage by user.

    `half_life` is in seconds. `shares` are the users' shares; a user without an entry has 1.

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
        # The time to which `_usage` was last decayed, and its sum.
        self._at = 0.0
        self._total = 0.0

    def charge(self, user: str, amount: float, now: float) -> None:
        """Add usage of a user (such as core-seconds) at `now` (seconds)."""
        self._settle(now)
        self._usage[user] = self._usage.get(user, 0.0) + amount
        self._total += amount

    def factor(self, user: str) -> float:
        """A factor between 0 and 1; 1 without usage. It changes with new usage, not with time."""
        used = self._usage.get(user, 0.0)
        if not used or not self._total:
            return 1.0
        known = self._usage.keys() | self._shares.keys()
        whole = sum(self._shares.get(one, 1.0) for one in known)
        part = self._shares.get(user, 1.0) / whole
        return float(2 ** -(used / self._total / part))

    def priority(self, urgency: int, user: str) -> int:
        """The priority of a user's job: by urgency, then by factor. Held and expedited jobs ignore the factor."""
        if urgency in (URGENCY_HOLD, URGENCY_EXPEDITE):
            return urgency * STEPS
        return urgency * STEPS + int(self.factor(user) * (STEPS - 1))

    def _settle(self, now: float) -> None:
        """Decay usage until `now`. All of it decays alike, so the factors do not change."""
        if now <= self._at:
            return
        fade = 0.5 ** ((now - self._at) / self.half_life)
        self._at = now
        self._usage = {user: used * fade for user, used in self._usage.items() if used * fade >= 1e-6}
        self._total = sum(self._usage.values())
