"""Resources added rank by rank."""

from __future__ import annotations

from typing import Any, Dict


class Rlist:
    """Resources added rank by rank, to make a ResourceSet."""

    def __init__(self) -> None:
        self._ranks: Dict[int, Dict[str, str]] = {}

    def add_rank(self, rank: int, hostname: str = "", cores: str = "") -> Rlist:
        """Add a rank with its cores (an idset)."""
        self._ranks[rank] = {"host": hostname, "core": cores}
        return self

    def add_child(self, rank: int, name: str, ids: str) -> Rlist:
        """Add cores or gpus (an idset) to a rank. Raises KeyError, ValueError."""
        if name not in ("core", "gpu"):
            raise ValueError(f"a rank has core and gpu, not {name}")
        self._ranks[rank][name] = ids
        return self

    def to_dict(self) -> Dict[str, Any]:
        """R as an object."""
        lite = []
        for rank, ids in self._ranks.items():
            children = {name: ids[name] for name in ("core", "gpu") if ids.get(name)}
            lite.append({"rank": str(rank), "children": children})
        execution: Dict[str, Any] = {"R_lite": lite, "starttime": 0.0, "expiration": 0.0}
        if any(ids["host"] for ids in self._ranks.values()):
            execution["nodelist"] = [ids["host"] for ids in self._ranks.values()]
        return {"version": 1, "execution": execution}
