"""Commands as clients of another instance: what is refused before they begin, and how they ended."""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.proxy import main as proxy
from headrace.formats.spec.message import Deframer, frame, response


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """`proxied(argv, version)`: the status, of a proxy to a broker that answers everything with its version."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    threads = []

    def serve(sock: socket.socket, version: str) -> None:
        deframer = Deframer()
        with sock:
            while data := sock.recv(1 << 16):
                deframer.feed(data)
                for msg in deframer:
                    if not msg.noresponse:
                        sock.sendall(frame(response(msg, {"value": version})))

    def run(argv: list[str], version: str = "0.88.0") -> int:
        def connect(_uri: str) -> Any:
            import _socket

            ours, theirs = socket.socketpair()
            threads.append(threading.Thread(target=serve, args=(theirs, version)))
            threads[-1].start()
            return _socket.socket(fileno=ours.detach())

        monkeypatch.setattr(proxy, "connect", connect)
        return proxy.main(argv)

    yield run
    import gc

    # The connection of a proxy that has ended is closed with it.
    gc.collect()
    for thread in threads:
        thread.join(60)
    assert list(tmp_path.iterdir()) == []


URI = "local:///run/x/local-0"


@pytest.mark.parametrize(
    ("code", "status"),
    [("raise SystemExit(7)", 7), ("", 0), ("import os; os.kill(os.getpid(), 15)", 128 + 15)],
)
def test_the_commands_end_is_ours(proxied: Any, code: str, status: int) -> None:
    assert proxied([URI, sys.executable, "-c", code]) == status


CHECK = (
    "import os, sys; e = os.environ; "
    "bad = [n for n in ('FLUX_JOB_ID', 'FLUX_KVS_NAMESPACE') if n in e]; "
    "remote = e.get('FLUX_PROXY_REMOTE', ''); "
    "sys.exit(f'{e} {bad} {remote}' if bad or remote != sys.argv[1] or not os.path.exists(e['FLUX_URI'][8:]) else 0)"
)


@pytest.mark.parametrize(
    ("uri", "remote"), [(URI, ""), ("ssh://host/x/local-0", "host"), ("ssh://me@host/x/local-0", "me@host")]
)
def test_the_command_is_in_the_other_instance_and_not_in_a_job_of_this_one(
    proxied: Any, monkeypatch: pytest.MonkeyPatch, uri: str, remote: str
) -> None:
    for name in ("FLUX_JOB_ID", "FLUX_KVS_NAMESPACE", "FLUX_PROXY_REMOTE"):
        monkeypatch.setenv(name, "x")
    assert proxied([uri, sys.executable, "-c", CHECK, remote]) == 0


def test_the_commands_connections_reach_the_instance(proxied: Any) -> None:
    code = "from headrace.wire.client.handle import Handle; assert Handle().attr_get('any') == '0.88.7'"
    assert proxied([URI, sys.executable, "-c", code], "0.88.7") == 0


@pytest.mark.parametrize(
    ("command", "status", "text"),
    [("/nosuch", 127, "No such file or directory"), ("/etc/passwd", 126, "Permission denied")],
)
def test_a_command_that_cannot_be_run_has_the_shells_status(proxied: Any, command: str, status: int, text: str) -> None:
    with pytest.raises(CommandError) as refused:
        proxied([URI, command])
    assert (refused.value.status, refused.value.text) == (status, f"{command}: {text}")


def test_another_version_is_refused_unless_forced(proxied: Any, capsys: Any) -> None:
    text = "proxy version 0.88.0 may not interoperate with broker version 0.61.2"
    with pytest.raises(CommandError) as refused:
        proxied([URI, "true"], "0.61.2")
    assert refused.value.text == f"fatal: {text} (--force to connect anyway)"
    assert proxied(["--force", URI, "true"], "0.61.2") == 0
    assert f"flux-proxy: warning: {text}\n" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["", "nosuch", "\udcff", "bogus:1"])
def test_a_target_that_is_none_is_named(target: str) -> None:
    with pytest.raises(CommandError, match=r"^Unable to resolve .* to a URI: "):
        proxy.main([target, "true"])


def test_a_folder_too_deep_for_a_socket_is_named(proxied: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("TMPDIR", str(deep))
    with pytest.raises(CommandError, match="flux-proxy-"):
        proxied([URI, "true"])
    os.rmdir(deep)
