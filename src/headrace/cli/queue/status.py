"""The status of a queue, as its service tells it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headrace.wire.client.handle import Handle


def status_of(handle: Handle, name: str, nodeid: int = 0) -> Any:
    """The call that asks for a queue's status; "" is the anonymous queue."""
    return handle.rpc("job-manager.queue-status", {"name": name} if name else {}, nodeid)
