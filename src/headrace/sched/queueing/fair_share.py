"""Fair share in a queue: users' usage is charged as their jobs end, and orders their pending jobs.

The tree, the decay of usage and the formula of priorities are those of accounting. This module only remembers the
usage, for the simulator and for a scheduler with the option `fair-share`, which have no database. It does not know
queues: its caller charges the usage of jobs, and submits and reprioritizes jobs with the returned priorities.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.sched.accounting.priority import Weights, job_priority
from headrace.sched.accounting.tree import Bank, User, fair_share, tree
from headrace.sched.accounting.usage import Decay, Periods

_WEIGHTS = Weights()
# Usage is forgotten after this many half-lives, the default of accounting.
_HALF_LIVES = 4
_ROOT = Bank("root", "", 1)


class FairShare:
    """The usage and the fair share of users.

    `half_life` is in seconds. Without `banks`, all users are in one bank and have one share each. With banks, users
    who are in none of them are behind all others, and a user of several banks is charged in the first one. The
    usages of `users` are those at `begin` (seconds).

    Raises ValueError for a half-life that is not positive, and if banks and users do not form a tree.
    """

    def __init__(
        self, half_life: float, banks: Iterable[Bank] = (), users: Iterable[User] = (), begin: float = 0.0
    ) -> None:
        if half_life <= 0:
            raise ValueError(f"fair share: the half-life must be a positive number of seconds, not {half_life}")
        self.half_life = half_life
        given, members = list(banks), list(users)
        self._is_open = not given
        self._banks = given or [_ROOT]
        tree(self._banks, members)
        self._users = {(user.name, user.bank): user for user in members}
        self._bank: dict[str, str] = {}
        for name, bank in self._users:
            self._bank.setdefault(name, bank)
        decay = Decay(half_life, _HALF_LIVES * half_life)
        self._periods = Periods[tuple[str, str]](decay, begin)
        for key, user in self._users.items():
            self._periods.book(key, user.usage)
        self._values: dict[str, float] = {}
        self._changed = True
        self.review(begin)

    def add(self, user: str) -> bool:
        """Add a user without usage if all users are in one bank; False for a user who is known or in no bank.

        The next review compares the others with the user.
        """
        if not self._is_open or user in self._bank:
            return False
        self._bank[user] = _ROOT.name
        self._users[user, _ROOT.name] = User(user, _ROOT.name, 1, 0.0)
        self._changed = True
        return True

    def charge(self, user: str, amount: float, now: float) -> None:
        """Add usage of a user (such as core-seconds) at `now` (seconds)."""
        self.add(user)
        if user in self._bank:
            self._changed |= self._periods.roll(now) > 0 or amount > 0
            self._periods.book((user, self._bank[user]), amount)

    def review(self, now: float, running: Mapping[str, float] | None = None) -> set[str]:
        """Compute all fair shares at `now`; returns the users whose fair share has changed.

        `running` is usage by user that counts for this review, and is charged later.
        """
        if not (self._periods.roll(now) or self._changed or running):
            return set()
        # Without the usage of running jobs, the next review may compute other values.
        self._changed = bool(running)
        totals = dict(self._periods.totals)
        for name, amount in (running or {}).items():
            if name in self._bank:
                key = (name, self._bank[name])
                totals[key] = totals.get(key, 0.0) + amount
        users = (
            User(user.name, user.bank, user.shares, totals.get(key, 0.0), user.active)
            for key, user in self._users.items()
        )
        values: dict[str, float] = {}
        for standing in fair_share(self._banks, users):
            if self._bank[standing.username] == standing.bank:
                values[standing.username] = standing.fairshare
        before = {user: self.value(user) for user in values}
        self._values = values
        return {user for user, value in values.items() if value != before[user]}

    def value(self, user: str) -> float:
        """The fair share of a user at the last review: 1 for the user of the first rank, 0 for one in no bank."""
        return self._values.get(user, 1.0 if self._is_open else 0.0)

    def priority(self, urgency: int, user: str) -> int:
        """The priority of a user's job, with accounting's default weights."""
        return job_priority(_WEIGHTS, self.value(user), 0, 0.0, urgency)
