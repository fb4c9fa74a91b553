"""Runs a command in a pod's container through the API server, with this process's standard streams.

One WebSocket carries the streams as channels; the first byte of a message is the channel. Source: the subprotocol
v5.channel.k8s.io of Kubernetes (1.30 and later).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import termios
import tty
from collections.abc import Iterator
from typing import Any

import aiohttp

from headrace.k8s.objects.kinds import PODS
from headrace.k8s.runtime.api import Api

PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR = 0, 1, 2, 3
_RESIZE, _CLOSE = 4, 255
_CHUNK = 32768


class BrokenExecError(Exception):
    """The connection ended before the command's status arrived, or the command could not be started."""


async def run(
    api: Api, namespace: str, pod: str, container: str, command: list[str], stdin: int = 0, terminal: bool = False
) -> int:
    """Run `command` and return its exit status.

    `stdin` is a file descriptor. With `terminal`, the command gets a terminal, and this terminal's keys are its input.
    Raises ApiError, Unreachable, BrokenExecError.
    """
    query = [("container", container), ("stdin", "true"), ("stdout", "true")]
    query += [("tty", "true")] if terminal else [("stderr", "true")]
    query += [("command", word) for word in command]
    socket = await api.websocket(PODS, namespace, pod, "exec", query, PROTOCOL)
    with contextlib.ExitStack() as stack:
        if terminal:
            stack.enter_context(_raw(stdin))
            stack.enter_context(_sizes_sent(socket, stdin))
        sender = asyncio.create_task(_send_input(socket, stdin))
        try:
            return await _receive(socket)
        finally:
            sender.cancel()
            await socket.close()


async def output(api: Api, namespace: str, pod: str, container: str, command: list[str]) -> tuple[int, bytes]:
    """Run `command` without input; returns its exit status and its standard output.

    The command's standard error goes to this process's. Raises the same errors as `run`.
    """
    query = [("container", container), ("stdout", "true"), ("stderr", "true")]
    query += [("command", word) for word in command]
    socket = await api.websocket(PODS, namespace, pod, "exec", query, PROTOCOL)
    printed = bytearray()
    try:
        return await _receive(socket, printed), bytes(printed)
    finally:
        await socket.close()


async def _receive(socket: aiohttp.ClientWebSocketResponse, printed: bytearray | None = None) -> int:
    """Receive until the command ends; returns its exit status.

    Standard output is appended to `printed` if given.
    """
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == ERROR:
            return exit_status(json.loads(data))
        if channel == STDOUT and printed is not None:
            printed += data
            continue
        out = {STDOUT: 1, STDERR: 2}.get(channel)
        if out is not None:
            _write(out, data)
    raise BrokenExecError("the connection ended before the command did")


def exit_status(status: dict[str, Any]) -> int:
    """The exit status in the final Status of a command. Raises BrokenExecError if it did not start."""
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or []
    for cause in causes:
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise BrokenExecError(status.get("message") or "the command was not started")


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


async def _send_input(socket: aiohttp.ClientWebSocketResponse, stdin: int) -> None:
    while True:
        await _readable(stdin)
        chunk = _read(stdin)
        if not chunk:
            break
        await _send(socket, STDIN, chunk)
    await _send(socket, _CLOSE, bytes((STDIN,)))


async def _send(socket: aiohttp.ClientWebSocketResponse, channel: int, data: bytes) -> None:
    # `_receive` notices the end of the connection as well, and reports it.
    with contextlib.suppress(ConnectionError):
        await socket.send_bytes(bytes((channel,)) + data)


async def _readable(stdin: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(stdin, readable.set)
    except OSError:
        # A regular file is always readable, and the event loop cannot watch it.
        return
    try:
        await readable.wait()
    finally:
        loop.remove_reader(stdin)


def _read(stdin: int) -> bytes:
    try:
        return os.read(stdin, _CHUNK)
    except OSError:
        # The terminal was hung up.
        return b""


@contextlib.contextmanager
def _sizes_sent(socket: aiohttp.ClientWebSocketResponse, stdin: int) -> Iterator[None]:
    """Send the size of the terminal at once, and after each change while the block runs."""
    loop = asyncio.get_running_loop()
    sending: set[asyncio.Task[None]] = set()

    def tell() -> None:
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(stdin)
            text = json.dumps({"Width": size.columns, "Height": size.lines}).encode()
            task = loop.create_task(_send(socket, _RESIZE, text))
            sending.add(task)
            task.add_done_callback(sending.discard)

    tell()
    loop.add_signal_handler(signal.SIGWINCH, tell)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


@contextlib.contextmanager
def _raw(stdin: int) -> Iterator[None]:
    """Switch this terminal to raw mode, in which each key is read when it is pressed, while the block runs."""
    before = termios.tcgetattr(stdin)
    try:
        # TCSADRAIN keeps the keys that were typed earlier, for the command.
        tty.setraw(stdin, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
