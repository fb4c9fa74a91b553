"""Reaching brokers through ssh: the command that is run, and what is told when it fails."""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.formats.spec import credential
from headrace.wire.client.transport import connect, own_userid, split_uri, ssh_command, through_proxy

HERE = os.path.dirname(os.path.abspath(sys.executable))


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLUX_SSH", "FLUX_SSH_RCMD", "FLUX_PROXY_REMOTE", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", ["/opt/h/bin/flux"])


def script(folder: Path, body: str) -> str:
    path = folder / "ssh"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("host", "target"),
    [("h", ["h"]), ("me@h", ["me@h"]), ("h:42", ["-p", "42", "h"]), ("me@h:42", ["-p", "42", "me@h"])],
)
def test_ssh_runs_the_relay_that_is_found_beside_the_socket_or_where_it_is_here(host: str, target: list[str]) -> None:
    search = "PATH=/run/x/bin:/opt/h/bin:/bin:/usr/bin"
    expected = ["ssh", *target, "env", search, "flux", "relay", "/run/x/local-3"]
    assert ssh_command(host, "/run/x/local-3") == expected


def test_another_ssh_another_flux_and_libraries_are_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUX_SSH", "myssh -q")
    assert ssh_command("h", "/r/local")[:4] == ["myssh", "-q", "h", "env"]
    monkeypatch.setenv("FLUX_SSH_RCMD", "/there/flux")
    assert ssh_command("h", "/r/a b") == ["myssh", "-q", "h", "/there/flux", "relay", "'/r/a b'"]
    monkeypatch.setenv("LD_LIBRARY_PATH", "/l")
    assert ssh_command("h", "/r/local")[3:5] == ["LD_LIBRARY_PATH=/l", "/there/flux"]


@pytest.mark.parametrize("uri", ["ssh://", "ssh://h", "ssh://h/", "ssh:///r/local", "ssh://h/r/local?x=y", "tcp://h/x"])
def test_an_address_without_host_or_path_or_with_a_query_is_refused(uri: str) -> None:
    with pytest.raises(OSError, match="is not a broker URI") as refused:
        split_uri(uri)
    assert refused.value.errno == errno.EINVAL


@pytest.mark.parametrize(
    "host", ["-oProxyCommand=pc", "-l@h", "u@-oProxyCommand=pc", "@h", "h:", "h:bad", "h:0", "h:65536", "h:22:33"]
)
def test_a_host_that_ssh_would_take_for_an_option_or_a_port_that_is_none_is_refused(host: str) -> None:
    with pytest.raises(OSError, match="is not a broker URI"):
        split_uri(f"ssh://{host}/r/local")


def test_a_missing_ssh_is_named_with_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUX_SSH", "/no/such")
    with pytest.raises(FileNotFoundError) as refused:
        connect("ssh://h/r/local")
    assert refused.value.strerror == (
        "ssh-connector: /no/such: No such file or directory\nHint: set FLUX_SSH in environment to override"
    )


def test_what_a_failing_ssh_says_is_in_the_error_and_not_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any
) -> None:
    monkeypatch.setenv("FLUX_SSH", script(tmp_path, "echo no route to $1 >&2; exit 255"))
    with pytest.raises(OSError, match="no route to h") as refused:
        connect("ssh://h/r/local")
    assert refused.value.errno == errno.ECONNRESET
    assert capfd.readouterr() == ("", "")


def test_ssh_is_run_also_to_our_own_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "local"))
    listener.listen()

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            client.sendall(b"\0hello")
            client.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    relay = f"{sys.executable} -c 'from headrace.cli.main import flux; import sys; flux()'"
    # Stands for ssh: notes that it was run, and runs the relay here.
    body = f'touch {tmp_path}/ran; for last; do :; done; exec {relay} relay "$last"'
    monkeypatch.setenv("FLUX_SSH", script(tmp_path, body))
    sock = connect(f"ssh://localhost{tmp_path}/local")
    assert sock.recv(5) == b"hello"
    assert (tmp_path / "ran").exists()
    sock.close()
    thread.join()
    listener.close()


def test_addresses_that_a_broker_elsewhere_gives_are_on_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert through_proxy("local:///r/local") == "local:///r/local"
    monkeypatch.setenv("FLUX_PROXY_REMOTE", "me@h")
    assert through_proxy("local:///r/local") == "ssh://me@h/r/local"
    assert through_proxy("ssh://other/r/local") == "ssh://other/r/local"


def test_a_broker_that_does_not_greet_is_waited_for_as_long_as_asked(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/local")
        listener.listen()
        with pytest.raises(OSError, match="Unable to connect to Flux: Connection timed out") as caught:
            connect(f"local://{tmp_path}/local", timeout=0.01)
    assert caught.value.errno == errno.ETIMEDOUT


def test_a_connection_that_was_made_in_time_has_no_timeout_any_more(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/local")
        listener.listen()
        thread = threading.Thread(target=lambda: listener.accept()[0].sendall(b"\0"))
        thread.start()
        sock = connect(f"local://{tmp_path}/local", timeout=100)
        assert sock.gettimeout() is None
        sock.close()
        thread.join()


def test_ones_own_jobs_are_those_of_the_process_unless_a_guests_job_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in credential.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLUX_HANDLE_USERID", "1234")
    assert own_userid() == os.getuid()
    for name, value in credential.environment(1234, 2).items():
        monkeypatch.setenv(name, value)
    assert own_userid() == 1234
    monkeypatch.setenv("HEADRACE_USERID", "me")
    with pytest.raises(OSError, match="HEADRACE_USERID is 'me'"):
        own_userid()
