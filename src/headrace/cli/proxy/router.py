"""Routes messages between many clients and a single connection to a broker (RFC 3, RFC 6).

Before a client's request is sent to the broker, the client's uuid is added to its route stack; the response is routed
to the client by it. To the broker all clients are a single one. So the router keeps for each client what the broker
keeps for a connection: event subscriptions, services, and the disconnect requests that notify services when a client
is gone. There is no I/O here.
"""

from __future__ import annotations

import errno

from headrace.formats.spec.message import (
    EVENT,
    FLAG_ROUTE,
    FLAG_UPSTREAM,
    REQUEST,
    RESPONSE,
    Message,
    MessageError,
    error_response,
    request,
    response,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Set, Tuple


class Client:
    """One client: `uuid` is its name on route stacks, `send` sends it a message."""

    def __init__(self, uuid: bytes, send: Callable[[Message], None]) -> None:
        self.uuid = uuid
        self.send = send
        self.topics: Set[str] = set()
        # (service, nodeid, upstream flag) of its requests; these services get a disconnect request.
        self.used: Set[Tuple[str, int, int]] = set()
        # Its requests without a final response, by matchtag.
        self.waits: Dict[int, Message] = {}
        # Its pending service.add and service.remove requests as (topic, name), by matchtag.
        self.registers: Dict[int, Tuple[str, str]] = {}
        # Requests to its services that it has not answered yet, by route stack and matchtag.
        self.serves: Dict[Tuple[Tuple[bytes, ...], int], Message] = {}


class ProxyRouter:
    """Routes between clients and the broker; `up` sends a message to the broker."""

    def __init__(self, up: Callable[[Message], None]) -> None:
        self.up = up
        self.clients: Dict[bytes, Client] = {}
        self.services: Dict[str, Client] = {}

    def join(self, client: Client) -> None:
        self.clients[client.uuid] = client

    def leave(self, client: Client) -> None:
        """Undo a client's subscriptions and services at the broker, and notify the services that it used."""
        if self.clients.pop(client.uuid, None) is None:
            return
        for topic in sorted(client.topics):
            if not self._subscribed(topic):
                self.up(request("event.unsubscribe", {"topic": topic}))
        for name in [name for name, owner in self.services.items() if owner is client]:
            del self.services[name]
            self.up(request("service.remove", {"service": name}))
        for msg in client.serves.values():
            self.up(error_response(msg, errno.ENOSYS))
        for service, nodeid, upstream in sorted(client.used):
            note = request(service + ".disconnect", None, nodeid, flags=upstream)
            note.routes.append(client.uuid)
            self.up(note)

    def from_client(self, client: Client, msg: Message) -> None:
        """Route a message of a client. Raises MessageError if a client may not send such a message."""
        if msg.type == REQUEST:
            if msg.topic in ("event.subscribe", "event.unsubscribe") and self._subscribe(client, msg):
                return
            self._request(client, msg)
        elif msg.type == RESPONSE:
            client.serves.pop((tuple(msg.routes), msg.matchtag), None)
            self.up(msg)
        elif msg.type == EVENT:
            self.up(msg)
        else:
            raise MessageError(f"{msg!r} is not a message of a client")

    def from_broker(self, msg: Message) -> None:
        """Route a message of the broker. Responses to clients that are gone are dropped."""
        if msg.type == RESPONSE:
            client = self.clients.get(msg.routes.pop()) if msg.routes else None
            if client is not None:
                self._response(client, msg)
        elif msg.type == EVENT:
            for client in list(self.clients.values()):
                if any(map(msg.topic.startswith, client.topics)):
                    client.send(msg)
        elif msg.type == REQUEST:
            self._serve(msg)

    def lost(self) -> None:
        """Fail all pending requests of clients, because the connection to the broker is lost."""
        for client in list(self.clients.values()):
            waits, client.waits, client.registers = client.waits, {}, {}
            client.serves.clear()
            for msg in waits.values():
                client.send(error_response(msg, errno.ECONNRESET))

    def restored(self) -> None:
        """Renew subscriptions and services of clients on a new connection to the broker."""
        topics = {topic for client in self.clients.values() for topic in client.topics}
        for topic in sorted(topics):
            self.up(request("event.subscribe", {"topic": topic}))
        for name in sorted(self.services):
            self.up(request("service.add", {"service": name}))

    def _subscribed(self, topic: str) -> bool:
        return any(topic in client.topics for client in self.clients.values())

    def _subscribe(self, client: Client, msg: Message) -> bool:
        """Record that a client subscribes or unsubscribes.

        Returns True if another client has the subscription, too, so that the broker need not be asked.
        """
        topic = _text(msg, "topic")
        if topic is None:
            return False
        if msg.topic == "event.subscribe":
            known = self._subscribed(topic)
            client.topics.add(topic)
        elif topic in client.topics:
            client.topics.remove(topic)
            known = self._subscribed(topic)
        else:
            return False
        if known and not msg.noresponse:
            client.send(response(msg))
        return known

    def _request(self, client: Client, msg: Message) -> None:
        if msg.topic in ("service.add", "service.remove"):
            name = _text(msg, "service")
            if name is not None:
                client.registers[msg.matchtag] = (msg.topic, name)
        if not msg.noresponse:
            client.used.add((msg.topic.rpartition(".")[0], msg.nodeid, msg.flags & FLAG_UPSTREAM))
            kept = Message(REQUEST, msg.topic, flags=msg.flags, aux1=msg.aux1, aux2=msg.aux2, routes=msg.routes[:])
            client.waits[msg.matchtag] = kept
        msg.flags |= FLAG_ROUTE
        msg.routes.append(client.uuid)
        self.up(msg)

    def _response(self, client: Client, msg: Message) -> None:
        if msg.errnum or not msg.streaming:
            client.waits.pop(msg.matchtag, None)
        topic, name = client.registers.pop(msg.matchtag, ("", ""))
        if topic and not msg.errnum:
            if topic == "service.add":
                self.services[name] = client
            else:
                self.services.pop(name, None)
        client.send(msg)

    def _serve(self, msg: Message) -> None:
        client = self._service_of(msg.topic)
        if client is None:
            if not msg.noresponse:
                self.up(error_response(msg, errno.ENOSYS))
            return
        if not msg.noresponse:
            client.serves[tuple(msg.routes), msg.matchtag] = msg
        client.send(msg)

    def _service_of(self, topic: str) -> Client | None:
        """The client that provides `topic`: its service is the longest registered prefix of whole words."""
        words: List[str] = topic.split(".")
        for count in range(len(words) - 1, 0, -1):
            client = self.services.get(".".join(words[:count]))
            if client is not None:
                return client
        return None


def _text(msg: Message, key: str) -> str | None:
    """The string `key` of a request's body; None for a wrong request, which the broker will reject."""
    try:
        found = (msg.obj or {}).get(key)
    except MessageError:
        return None
    return found if isinstance(found, str) else None
