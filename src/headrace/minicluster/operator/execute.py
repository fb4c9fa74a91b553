"""Carries out the steps of `reconcile` for a cluster: those that write objects (`runtime.writes`), its Secret with
fresh keys, and requests to its lead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.k8s.objects.kinds import SECRETS, Kind
from headrace.k8s.runtime.steps import Create
from headrace.k8s.runtime.writes import Writer, Writes

from . import names
from .core.actions import MakeSecret, Step, Tell

Object = dict[str, Any]


class Executor:
    """`kind` is that of the clusters; `seen` is called with each object in a response; `tell` takes requests to the
    lead; `secret` makes the body of a cluster's Secret with fresh keys.
    """

    def __init__(
        self, api: Writer, kind: Kind, seen: Callable[[Kind, Object], None], tell: Callable[[str, Object], None],
        secret: Callable[[Object], Object],
    ) -> None:  # fmt: skip
        self.writes = Writes(api, kind, seen, _is_made_by_us)
        self._tell = tell
        self._secret = secret

    async def carry_out(self, cluster: Object, steps: tuple[Step, ...]) -> None:
        """Do the steps in order, up to the first that fails: raises Taken, ApiError, Unreachable."""
        for step in steps:
            if isinstance(step, MakeSecret):
                await self.writes.carry_out(cluster, Create(SECRETS, self._secret(cluster)))
            elif isinstance(step, Tell):
                self._tell(cluster["metadata"]["uid"], step.request)
            else:
                await self.writes.carry_out(cluster, step)


def _is_made_by_us(item: Object) -> bool:
    """The Go operator's objects have the same owner."""
    return (item["metadata"].get("labels") or {}).get(names.MANAGED_BY) == names.MANAGER
