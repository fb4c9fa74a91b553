"""Free, allocated and down resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict

from flux.idset import IDset
from flux.resource.ResourceSet import ResourceSet
from flux.rpc import RPC

if TYPE_CHECKING:
    from flux.core.handle import Flux


class SchedResourceList:
    """The sets `all`, `down` and `allocated`, and `up` and `free`, derived from these."""

    def __init__(self, resp: Dict[str, Any]) -> None:
        self.all = ResourceSet(resp.get("all"))
        self.down = ResourceSet(resp.get("down"))
        self.allocated = ResourceSet(resp.get("allocated"))
        for state in ("all", "down", "allocated"):
            getattr(self, state).state = state

    @property
    def up(self) -> ResourceSet:
        out = self.all - self.down
        out.state = "up"
        return out

    @property
    def free(self) -> ResourceSet:
        out = self.all - self.down - self.allocated
        out.state = "free"
        return out

    def filter(self, include: Any) -> SchedResourceList:
        """These sets with only some ranks (an idset) or hosts (a hostlist).

        Raises ValueError for anything else.
        """
        try:
            ranks = IDset(str(include))
        except ValueError:
            return self.copy_constraint({"hostlist": [str(include)]})
        return self._cut(lambda part: part.copy_ranks(ranks))

    def copy_constraint(self, constraint: Dict[str, Any]) -> SchedResourceList:
        """These sets with only the ranks that satisfy a constraint (RFC 31)."""
        return self._cut(lambda part: part.copy_constraint(constraint))

    def _cut(self, cut: Callable[[ResourceSet], ResourceSet]) -> SchedResourceList:
        return SchedResourceList({name: cut(getattr(self, name)) for name in ("all", "down", "allocated")})

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"Unknown resource state {name}")


class ResourceListRPC(RPC):
    def get(self) -> SchedResourceList:
        return SchedResourceList(super().get())


def resource_list(flux_handle: Flux) -> ResourceListRPC:
    """Request the scheduler's state through the resource service; `.get()` returns a SchedResourceList."""
    return ResourceListRPC(flux_handle, "resource.sched-status", nodeid=0)
