"""`flux relay`: bytes between standard streams and a socket, which is how a broker is reached through ssh."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

RELAY = [str(Path(sys.executable).parent / "flux"), "relay"]
# More than a pipe and a socket hold, so that writes are partial.
LARGE = bytes(range(256)) * 4096


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "local"))
        sock.listen()
        sock.settimeout(60)
        yield sock


def test_bytes_are_carried_both_ways_until_the_broker_ends(listener: socket.socket) -> None:
    with subprocess.Popen([*RELAY, listener.getsockname()], stdin=-1, stdout=-1) as relay:
        broker, _ = listener.accept()
        assert relay.stdin is not None and relay.stdout is not None
        with broker:
            broker.settimeout(60)
            relay.stdin.write(b"request")
            relay.stdin.flush()
            assert broker.recv(7, socket.MSG_WAITALL) == b"request"
            broker.sendall(b"\0" + b"answer")
            assert relay.stdout.read(7) == b"\0answer"
        assert (relay.stdout.read(), relay.wait(60)) == (b"", 0)


def test_large_messages_arrive_whole(listener: socket.socket) -> None:
    with subprocess.Popen([*RELAY, listener.getsockname()], stdin=-1, stdout=-1) as relay:
        broker, _ = listener.accept()
        assert relay.stdout is not None
        with broker:
            broker.settimeout(60)
            sender = threading.Thread(target=broker.sendall, args=(LARGE,))
            sender.start()
            assert relay.stdout.read(len(LARGE)) == LARGE
            sender.join()
        out, _ = relay.communicate(timeout=60)
        assert (out, relay.returncode) == (b"", 0)


def test_it_ends_when_its_input_does(listener: socket.socket) -> None:
    with subprocess.Popen([*RELAY, listener.getsockname()], stdin=-1, stdout=-1) as relay:
        broker, _ = listener.accept()
        with broker:
            out, _ = relay.communicate(LARGE[:1000], timeout=60)
            assert broker.recv(1000, socket.MSG_WAITALL) == LARGE[:1000]
        assert (out, relay.returncode) == (b"", 0)


def test_a_socket_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = subprocess.run([*RELAY, str(tmp_path / "none")], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (1, f"flux-relay: {tmp_path / 'none'}: No such file or directory\n")
