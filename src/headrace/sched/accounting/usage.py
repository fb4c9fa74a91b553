"""Usage: what a job is charged for, and how past usage fades.

An association's usage is kept in periods of one half-life each, newest first. When a period ends, each value moves one
period on and is multiplied by the decay factor, and the oldest is dropped. The association's usage is the sum of its
periods. These are the tables of flux-accounting, with two differences: all periods that have ended are moved on at
once, before anything new is booked, and no value is in two periods.

Pure: times are arguments, in seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import ceil, fsum, inf, isfinite
from typing import Generic, TypeVar

from msgspec import Struct

# What identifies an association: a name and a bank, or whatever the caller uses.
Key = TypeVar("Key", bound=Hashable)


class ResourceWeights(Struct, frozen=True):
    """What a second of each resource counts for: `node_weight`, `core_weight` and `gpu_weight` of `config_table`."""

    node: float = 1.0
    core: float = 0.0
    gpu: float = 0.0


class Decay(Struct, frozen=True):
    """How usage fades; the fields are keys of `config_table`, durations are in seconds.

    Raises ValueError for a duration that is not positive, and a factor that is not from 0 to 1.
    """

    priority_decay_half_life: float = 604800.0
    priority_usage_reset_period: float = 2419200.0
    decay_factor: float = 0.5

    def __post_init__(self) -> None:
        for key in ("priority_decay_half_life", "priority_usage_reset_period"):
            value = getattr(self, key)
            if not 0 < value < inf:
                raise ValueError(f"config_table: {key}: must be a positive number of seconds, not {value!r}")
        if not 0 <= self.decay_factor <= 1:
            raise ValueError(f"config_table: decay_factor: must be from 0 to 1, not {self.decay_factor!r}")

    @property
    def periods(self) -> int:
        """How many periods a new association has."""
        return max(1, int(self.priority_usage_reset_period / self.priority_decay_half_life))

    def due(self, end: float, now: float) -> int:
        """How many periods have ended since the one that `end_half_life_period` is in: it ends a half-life later."""
        return max(0, ceil((now - end) / self.priority_decay_half_life) - 1)


def job_usage(nodes: int, cores: int, gpus: int, seconds: float, weights: ResourceWeights) -> float:
    """The usage of a job that held these resources, counted over all nodes, for some seconds.

    It is 0 for a negative time, which a job has if the clock was set back while it ran.
    """
    return (nodes * weights.node + cores * weights.core + gpus * weights.gpu) * max(seconds, 0.0)


class Periods(Generic[Key]):
    """The usage of associations by period, and the sum of each.

    `end` is `end_half_life_period`. `values` has the values of associations that have some, newest first; an
    association keeps the number of its periods. `totals` are their sums, which fair share reads.

    A job that ended in a period before the current one is booked as what is left of it if `roll` is called with the
    time of its end first, and as if it had ended now otherwise.
    """

    def __init__(self, decay: Decay, end: float, values: Mapping[Key, Sequence[float]] | None = None) -> None:
        self.decay = decay
        self.end = end
        self.values: dict[Key, list[float]] = {}
        self.totals: dict[Key, float] = {}
        for key, found in (values or {}).items():
            if not found or not all(value >= 0 and isfinite(value) for value in found):
                raise ValueError(f"job_usage_per_association_table: {key!r}: value: must be 0 or more, not {found!r}")
            self.values[key] = list(found)
            self.totals[key] = fsum(found)

    def roll(self, now: float) -> int:
        """Move all values on by the periods that have ended at `now`; returns how many. A time in the past is none."""
        due = self.decay.due(self.end, now)
        if due:
            self.end += due * self.decay.priority_decay_half_life
            for key, old in self.values.items():
                kept = len(old) - due
                factor = self.decay.decay_factor**due if kept > 0 else 0.0
                self.values[key] = new = [0.0] * min(due, len(old)) + [value * factor for value in old[: max(kept, 0)]]
                self.totals[key] = fsum(new)
        return due

    def book(self, key: Key, usage: float) -> float:
        """Add the usage of a job to the current period; returns the association's total.

        Raises ValueError for a usage that is negative or no number.
        """
        if not 0 <= usage < inf:
            raise ValueError(f"usage of {key!r}: must be 0 or more, not {usage!r}")
        values = self.values.setdefault(key, [0.0] * self.decay.periods)
        values[0] += usage
        total = self.totals[key] = fsum(values)
        return total
