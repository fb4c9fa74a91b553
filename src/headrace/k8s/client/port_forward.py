"""Forwards a port of this machine to a port of a pod, through the API server.

Each connection is a WebSocket of its own. The first byte of a message is the channel: 0 is data, 1 is an error message.
The first message of each channel is the port in two bytes. Source: the subprotocol v4.channel.k8s.io of `portforward`,
as the kubelet serves it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import aiohttp

from headrace.k8s.objects.kinds import PODS
from headrace.k8s.runtime.api import Api, ApiError, Unreachable

PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_CHUNK = 32768


async def listen(
    api: Api, namespace: str, pod: str, port: int, local: int, tell: Callable[[str], None]
) -> asyncio.Server:
    """Listen on a loopback port (0: any free port).

    An error of a connection is passed to `tell` and closes that connection. Raises OSError.
    """

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            socket = await api.websocket(PODS, namespace, pod, "portforward", [("ports", str(port))], PROTOCOL)
            sender = asyncio.create_task(_send(reader, socket))
            try:
                await _receive(socket, writer, port, tell)
            finally:
                sender.cancel()
                await socket.close()
        except (ApiError, Unreachable) as exc:
            tell(str(exc))
        finally:
            writer.close()

    return await asyncio.start_server(forward, "127.0.0.1", local)


async def _send(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    # `_receive` notices the end of the connection as well.
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK):
            await socket.send_bytes(bytes((_DATA,)) + data)
    # The protocol cannot close one direction alone.
    await socket.close()


async def _receive(
    socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter, port: int, tell: Callable[[str], None]
) -> None:
    opened: set[int] = set()
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel not in opened:
            opened.add(channel)
            data = data[2:]
        if channel == _ERROR and data:
            tell(f"port {port} of the pod: {data.decode('utf-8', 'replace').strip()}")
            return
        if channel == _DATA and data:
            try:
                writer.write(data)
                await writer.drain()
            except ConnectionError:
                return
