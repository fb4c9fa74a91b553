"""A port that leads to one of a pod, and a command whose output is read; the server speaks as a kubelet does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import WSMsgType, web

from headrace.k8s.client import pod_exec, port_forward
from headrace.k8s.runtime.api import Api
from headrace.k8s.runtime.credentials import Cluster, Identity
from headrace.minicluster.client import clusters as client

POD = "/api/v1/namespaces/team/pods/lead"


async def forward(request: web.Request) -> web.WebSocketResponse:
    """Relay to a port of this machine, as a kubelet does to one of a pod, which has no type for what it streams."""
    if request.headers["Accept"] != "*/*":
        raise web.HTTPNotAcceptable
    socket = web.WebSocketResponse(protocols=(port_forward.PROTOCOL,))
    await socket.prepare(request)
    port = int(request.query["ports"])
    for channel in (0, 1):
        await socket.send_bytes(bytes((channel,)) + port.to_bytes(2, "little"))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        await socket.send_bytes(b"\1connection refused\n")
        return socket

    async def back() -> None:
        while data := await reader.read(1000):
            await socket.send_bytes(b"\0" + data)
        await socket.close()

    task = asyncio.create_task(back())
    async for message in socket:
        if message.type is WSMsgType.BINARY:
            assert message.data[0] == 0
            writer.write(message.data[1:])
    writer.close()
    await task
    return socket


async def execute(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(protocols=(pod_exec.PROTOCOL,))
    await socket.prepare(request)
    words = request.query.getall("command")
    await socket.send_bytes(b"\1" + " ".join(words[:2]).encode())
    await socket.send_bytes(b"\1" + words[-1].encode())
    status = {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}}
    await socket.send_bytes(b"\3" + json.dumps(status).encode())
    await socket.close()
    return socket


@contextlib.asynccontextmanager
async def kubelet() -> AsyncIterator[Api]:
    app = web.Application()
    app.router.add_get(f"{POD}/portforward", forward)
    app.router.add_get(f"{POD}/exec", execute)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with Api(Cluster(f"http://127.0.0.1:{port}", Identity(token="secret"))) as api:
            yield api
    finally:
        await runner.cleanup()


def test_connections_reach_the_port_of_the_pod_each_by_itself() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data.upper())
        writer.close()

    async def run() -> None:
        told: list[str] = []
        served = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with kubelet() as api:
            port = served.sockets[0].getsockname()[1]
            here = await port_forward.listen(api, "team", "lead", port, 0, told.append)
            address = here.sockets[0].getsockname()
            first, second = [await asyncio.open_connection(*address) for _ in range(2)]
            second[1].write(b"b" * 100_000)
            first[1].write(b"one")
            assert await first[0].readexactly(3) == b"ONE"
            assert await second[0].readexactly(100_000) == b"B" * 100_000
            first[1].write(b"two")
            assert await first[0].readexactly(3) == b"TWO"
            for _, writer in (first, second):
                writer.close()
            here.close()
        served.close()
        assert told == []

    asyncio.run(run())


def test_a_port_on_which_nothing_listens_is_told_and_the_connection_ends() -> None:
    async def run() -> None:
        told: list[str] = []
        free = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = free.sockets[0].getsockname()[1]
        free.close()
        await free.wait_closed()
        async with kubelet() as api:
            here = await port_forward.listen(api, "team", "lead", port, 0, told.append)
            reader, writer = await asyncio.open_connection(*here.sockets[0].getsockname())
            assert await reader.read() == b""
            assert told == [f"port {port} of the pod: connection refused"]
            writer.close()
            # A pod that is not there is told, too.
            gone = await port_forward.listen(api, "team", "nosuch", port, 0, told.append)
            reader, writer = await asyncio.open_connection(*gone.sockets[0].getsockname())
            assert await reader.read() == b"" and "portforward of nosuch" in told[1]
            writer.close()
            here.close()
            gone.close()

    asyncio.run(run())


def test_what_a_command_prints_is_read() -> None:
    async def run() -> tuple[int, bytes]:
        async with kubelet() as api:
            return await pod_exec.output(api, "team", "lead", "main", ["flux", "proxy", "--json"])

    assert asyncio.run(run()) == (3, b"flux proxy--json")


def test_the_command_that_asks_for_the_services_address() -> None:
    view: dict[str, Any] = {"spec": {"flux": {}}}
    command = client.service_command(view)
    assert command[1] == "proxy" and command[3].endswith("/bin/headrace") and command[4:] == ["api", "url", "--json"]
    own = {"spec": {"flux": {"container": {"disable": True}}}}
    assert client.service_command(own)[3:] == ["headrace", "api", "url", "--json"]
