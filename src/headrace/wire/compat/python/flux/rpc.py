"""`flux.rpc.RPC`: a future for one request."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Union

from flux.constants import FLUX_RPC_NORESPONSE, FLUX_RPC_STREAMING
from flux.future import Future, connection
from flux.message import encoded, to_text
from headrace.formats.spec.message import FLAG_STREAMING, NODEID_ANY, RESPONSE, Message
from headrace.wire.client.handle import Rpc

if TYPE_CHECKING:
    from flux.core.handle import Flux


class RPC(Future):
    """A request to `topic` with `payload`: an object, or text that is sent unchanged.

    Raises OSError EINVAL without a topic, TypeError for a payload that JSON cannot represent.
    """

    def __init__(
        self,
        flux_handle: Flux,
        topic: Union[str, bytes],
        payload: Any = None,
        nodeid: int = NODEID_ANY,
        flags: int = 0,
    ) -> None:
        handle = connection(flux_handle)
        if topic is None:
            raise OSError(errno.EINVAL, "a request needs a topic")
        if not isinstance(topic, (str, bytes)):
            raise TypeError(f"a topic is a string, not {type(topic).__name__}")
        topic = to_text(topic)
        if not topic:
            raise OSError(errno.EINVAL, "the topic of a request must not be empty")
        data = encoded(payload)
        if flags & FLUX_RPC_NORESPONSE:
            handle.rpc_noreply(topic, nodeid=nodeid, payload=data)
            call = Rpc(handle, topic, nodeid, 0)
            call.deliver(Message(RESPONSE, topic))
        else:
            streaming = FLAG_STREAMING if flags & (FLUX_RPC_STREAMING | FLAG_STREAMING) else 0
            call = handle.rpc(topic, None, nodeid, streaming, data)
        super().__init__(flux_handle, call)

    def get_str(self) -> Any:
        """The response's payload as text; None without one."""
        msg = self._received()
        return msg.text if msg.has_payload else None
