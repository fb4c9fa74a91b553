"""`flux.rpc.RPC`: a future for one request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from flux.future import Future
from headrace.spec.message import FLAG_STREAMING, NODEID_ANY

if TYPE_CHECKING:
    from flux.core.handle import Flux


class RPC(Future):
    """A request to `topic` with `payload` (an object, or JSON text)."""

    def __init__(
        self, flux_handle: Flux, topic: str, payload: Any = None, nodeid: int = NODEID_ANY, flags: int = 0
    ) -> None:
        if isinstance(payload, (str, bytes)):
            payload = json.loads(payload)
        handle = flux_handle.handle
        # FLUX_RPC_STREAMING is 2 in the C interface's flags.
        if flags & (2 | FLAG_STREAMING):
            call = handle.stream(topic, payload, nodeid)
        else:
            call = handle.rpc(topic, payload, nodeid)
        super().__init__(flux_handle, call)

    def get_str(self) -> str:
        """The answer's payload as text."""
        return str(self._received().text)
