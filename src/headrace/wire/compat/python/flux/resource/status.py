"""The resource service's state: drained, online and excluded ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flux.rpc import RPC

if TYPE_CHECKING:
    from flux.core.handle import Flux


def resource_status(flux_handle: Flux) -> RPC:
    return RPC(flux_handle, "resource.status", nodeid=0)
