"""Connects a socket of this process to a command in a pod's container, such as `flux relay`."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import aiohttp

from headrace.k8s.client.pod_exec import ERROR, PROTOCOL, STDERR, STDIN, STDOUT
from headrace.k8s.objects.kinds import PODS
from headrace.k8s.runtime.api import Api

_CHUNK = 32768


async def relay(api: Api, namespace: str, pod: str, container: str, command: list[str], ours: socket.socket) -> bytes:
    """Run `command` with a socket as its standard input and output, until either ends; closes the socket.

    Returns the end of the command's standard error. Raises ApiError, Unreachable.
    """
    query = [("container", container), ("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
    query += [("command", word) for word in command]
    reader, writer = await asyncio.open_connection(sock=ours)
    errors = b""
    try:
        web = await api.websocket(PODS, namespace, pod, "exec", query, PROTOCOL)
        sender = asyncio.create_task(_send(web, reader))
        try:
            async for message in web:
                if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                    continue
                channel, data = message.data[0], message.data[1:]
                if channel == ERROR:
                    break
                if channel == STDERR:
                    errors = (errors + data)[-_CHUNK:]
                elif channel == STDOUT:
                    writer.write(data)
                    await writer.drain()
        except ConnectionError:
            pass
        finally:
            sender.cancel()
            await web.close()
    finally:
        writer.close()
    return errors


async def _send(web: aiohttp.ClientWebSocketResponse, reader: asyncio.StreamReader) -> None:
    # `relay` notices the end of the connection as well.
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK):
            await web.send_bytes(bytes((STDIN,)) + data)
    await web.close()
