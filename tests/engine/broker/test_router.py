"""The router: longest service prefix, error answers, batching within a turn, and order of flushes."""

from __future__ import annotations

import asyncio
import errno
import time
import uuid

from headrace.engine.broker.router import Router, new_uuid
from headrace.formats.spec import message as m


class Box:
    """A peer that keeps what it gets."""

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self.got: list[m.Message] = []

    def send(self, msg: m.Message) -> None:
        self.got.append(msg)


def test_names_are_random_uuids() -> None:
    made = {new_uuid() for _ in range(200)}
    assert len(made) == 200
    for text in made:
        known = uuid.UUID(text)
        assert (str(known), known.version, known.variant) == (text, 4, uuid.RFC_4122)


def routed(topic: str, nodeid: int = m.NODEID_ANY, flags: int = 0) -> tuple[Box, Box]:
    """Send one request to a broker of rank 0 with services `kvs` and `7-shell-f1.rexec`; (service, client)."""

    async def main() -> tuple[Box, Box]:
        router = Router(0, asyncio.get_running_loop())
        client, service = Box("client"), Box("service")
        router.add_peer(client)
        router.services["kvs"] = service
        router.services["7-shell-f1.rexec"] = service
        msg = m.request(topic, None, nodeid, matchtag=1, flags=flags)
        msg.routes.append(b"client")
        router.request(msg)
        for _ in range(5):
            await asyncio.sleep(0)
        return service, client

    return asyncio.run(main())


def test_a_request_goes_to_the_service_with_the_longest_prefix():
    for topic in ("kvs.lookup", "kvs.a.b", "7-shell-f1.rexec.exec"):
        service, client = routed(topic)
        assert [msg.topic for msg in service.got] == [topic]
        assert not client.got


def test_a_request_for_the_parent_of_the_outermost_broker_is_ehostunreach():
    service, client = routed("kvs.lookup", nodeid=0, flags=m.FLAG_UPSTREAM)
    assert not service.got
    assert [msg.errnum for msg in client.got] == [errno.EHOSTUNREACH]


def test_an_unknown_service_is_enosys_and_an_unknown_rank_ehostunreach():
    assert [msg.errnum for msg in routed("nosuch.x")[1].got] == [errno.ENOSYS]
    assert [msg.errnum for msg in routed("kvs.x", nodeid=5)[1].got] == [errno.EHOSTUNREACH]


def test_a_request_that_wants_no_answer_gets_none():
    assert routed("nosuch.x", flags=m.FLAG_NORESPONSE)[1].got == []


def test_flushes_run_when_messages_are_delivered_and_turn_ends_after_them():
    async def main() -> list[str]:
        router = Router(0, asyncio.get_running_loop())
        order: list[str] = []
        msg = m.request("a.b")

        def flush() -> None:
            order.append("flush")
            router.post(lambda _msg: order.append("second"), msg)

        router.at_turn_end(lambda: order.append("end"))
        router.at_flush(flush)
        router.post(lambda _msg: order.append("first"), msg)
        for _ in range(3):
            await asyncio.sleep(0)
        return order

    assert asyncio.run(main()) == ["first", "flush", "second", "end"]


def test_who_brings_more_is_asked_before_the_flush_but_cannot_put_it_off_for_ever():
    async def main() -> list[str]:
        router = Router(0, asyncio.get_running_loop())
        order: list[str] = []
        msg = m.request("a.b")

        def more() -> None:
            order.append("more")
            for _ in range(16):
                router.post(lambda _msg: time.sleep(0.0002), msg)
            router.when_free(more)

        router.at_flush(lambda: order.append("flush"))
        router.when_free(more)
        while order.count("flush") < 1:
            await asyncio.sleep(0)
        router.at_flush(lambda: order.append("flush"))
        while order.count("flush") < 2:
            await asyncio.sleep(0)
        return order

    order = asyncio.run(main())
    assert order[0] == "more"
    assert len(order) < 40


def test_a_large_request_of_a_guest_waits_for_all_else_and_not_for_ever():
    class Slow(Box):
        """A service that takes more than a turn for a guest's large request."""

        def send(self, msg: m.Message) -> None:
            super().send(msg)
            if msg.encoded_size > 1000:
                time.sleep(0.003)

    def asked(tag: int, owner: bool, size: int = 0) -> m.Message:
        role = m.ROLE_OWNER if owner else m.ROLE_USER
        return m.request("kvs.x", matchtag=tag, userid=5, rolemask=role, payload=b"x" * size + b"\0")

    async def main() -> tuple[list[int], list[int]]:
        router = Router(0, asyncio.get_running_loop())
        service = router.services["kvs"] = Slow("service")
        for tag in (1, 2, 3):
            router.request(asked(tag, False, 1 << 15))
        router.request(asked(4, False))
        router.request(asked(10, True))
        router.at_turn_end(lambda: service.got.append(m.request("end", matchtag=20)))
        await asyncio.sleep(0)
        router.request(asked(11, True))
        for _ in range(10):
            await asyncio.sleep(0)
        first = [msg.matchtag for msg in service.got]

        # An owner who leaves no turn to others.
        def more(_msg: m.Message) -> None:
            time.sleep(0.003)
            if service.got[-1].matchtag != 30:
                router.post(more, _msg)

        router.request(asked(30, False, 1 << 15))
        router.post(more, asked(0, True))
        for _ in range(100):
            await asyncio.sleep(0)
        return first, [msg.matchtag for msg in service.got[len(first) :]]

    assert asyncio.run(main()) == ([10, 20, 1, 11, 2, 3, 4], [30])


def test_a_failing_handler_does_not_stop_the_messages_behind_it():
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, _context: None)
        router = Router(0, loop)
        got: list[int] = []
        msg = m.request("a.b")
        router.post(lambda _msg: 1 // 0, msg)
        router.post(lambda _msg: got.append(1), msg)
        for _ in range(4):
            await asyncio.sleep(0)
        return got

    assert asyncio.run(main()) == [1]


def test_a_failing_flush_does_not_stop_those_behind_it():
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, _context: None)
        router = Router(0, loop)
        got: list[str] = []
        for ask, name in ((router.at_flush, "flush"), (router.at_turn_end, "end")):
            ask(lambda: 1 // 0)
            ask(lambda name=name: got.append(name))
        for _ in range(6):
            await asyncio.sleep(0)
        return got

    assert asyncio.run(main()) == ["flush", "end"]


def test_a_neighbour_in_the_tree_is_a_peer_but_not_one_of_this_broker():
    async def main() -> None:
        router = Router(0, asyncio.get_running_loop())
        client, child = Box("client"), Box("child")
        router.add_peer(client)
        router.add_neighbour(child)
        msg = m.request("service.add", {}, matchtag=1)
        assert router.local_peer(msg) is None
        msg.routes = [b"far", b"child"]
        assert router.local_peer(msg) is None
        msg.routes = [b"far", b"client"]
        assert router.local_peer(msg) is client
        router.remove_peer(child)
        router.add_peer(Box("child"))
        msg.routes = [b"child"]
        assert router.local_peer(msg) is not None, "once it is gone its name is nothing special"

    asyncio.run(main())
