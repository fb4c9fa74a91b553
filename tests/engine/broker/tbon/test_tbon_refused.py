"""What is said of those who are not let in, and how often."""

from __future__ import annotations

import contextlib
import logging
import socket

import pytest
import zmq

from headrace.engine.broker.boot import boot
from headrace.engine.broker.tbon import refused

AUTH, PROTOCOL, NO_DETAIL = (
    *(zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL),
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
)


@pytest.fixture
def info() -> boot.BootInfo:
    made = boot.alone("here")
    made.parent_uri, made.certificate = "tcp://lead:8050", "/etc/curve.cert"
    return made


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (AUTH, "tcp://lead:8050 refused our key, of /etc/curve.cert"),
        (
            PROTOCOL,
            "tcp://lead:8050 ended the handshake: no broker with the certificate of /etc/curve.cert answers there",
        ),
        (
            NO_DETAIL,
            "tcp://lead:8050 ended the handshake: no broker with the certificate of /etc/curve.cert answers there",
        ),
    ],
)
def test_a_child_names_the_parent_and_the_file_that_its_keys_are_from(
    info: boot.BootInfo, event: int, text: str
) -> None:
    assert refused.above(event, info) == text


def test_keys_of_no_file_are_named_without_one(info: boot.BootInfo) -> None:
    info.certificate = ""
    assert refused.above(AUTH, info) == "tcp://lead:8050 refused our key"
    assert refused.above(NO_DETAIL, info).endswith(": no broker with the key that we were told answers there")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::"])
def test_those_whose_connection_we_ended_are_known_for_a_while(address: str) -> None:
    """The last listens for both families, where IPv4 addresses are written as IPv6."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    dual = address == "::"
    try:
        server = socket.create_server((address, 0), family=family, dualstack_ipv6=dual)
    except OSError:
        pytest.skip("no IPv6 here")
    lines: list[str] = []
    refusals = refused.Refusals(lambda _level, _name, text: lines.append(text))
    where = "127.0.0.1" if dual else address
    with server, contextlib.ExitStack() as near:
        port = server.getsockname()[1]
        endpoint = f"tcp://[{address}]:{port}"

        # Connections of others on this host may have had the same port.
        others = refused.sent_away(endpoint)
        ours: set[int] = set()

        def send_away() -> None:
            ours.add(near.enter_context(socket.create_connection((where, port))).getsockname()[1])
            server.accept()[0].close()

        # By one that had our endpoint before us.
        send_away()
        refusals.begin(endpoint)
        refusals.log_handshake(endpoint, "")
        send_away()
        refusals.log_handshake(endpoint, "")
        assert ours <= {int(end.rpartition(":")[2], 16) for end in refused.sent_away(endpoint) - others}
    why = "refused: its certificate is not ours, or it is not a broker"
    assert lines == [f"connection from {peer} {why}" for peer in ("an unknown address", where)]
    assert refused.sent_away("tcp://127.0.0.1:1") == refused.sent_away("ipc:///run/x") == set()


def test_addresses_are_readable() -> None:
    assert refused.readable("localhost:0:100:4711") == "process 4711"
    assert refused.readable("::ffff:10.0.0.1") == "10.0.0.1"
    assert refused.readable("fd00::1") == "fd00::1"


def test_each_address_is_told_once_and_not_again_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    refusals = refused.Refusals(lambda _level, _name, text: lines.append(text))
    monkeypatch.setattr(refused, "address_of", lambda end: end.partition(":")[0])
    for peers in ({"a:1"}, {"a:1", "b:2", "b:3"}, {"a:1", "b:2", "b:3"}):
        monkeypatch.setattr(refused, "sent_away", lambda _endpoint, peers=peers: peers)
        refusals.log_handshake("tcp://x:1", "/etc/curve.cert")
    why = "refused: its certificate is not that of /etc/curve.cert, or it is not a broker"
    assert lines == [f"connection from a {why}", f"connection from b {why}"]


def test_a_line_comes_once_in_a_while_and_few_of_them_do() -> None:
    lines: list[tuple[int, str, str]] = []
    now = 100.0
    refusals = refused.Refusals(lambda *line: lines.append(line), lambda: now)
    for _ in range(1000):
        refusals.log(logging.WARNING, "a stranger")
    assert lines == [(logging.WARNING, "overlay", "a stranger")]
    for number in range(1000):
        refusals.log(logging.ERROR, f"stranger {number}")
    assert len(lines) == 20
    now += 61.0
    refusals.log(logging.WARNING, "a stranger")
    assert [text for _, _, text in lines[20:]] == ["1980 more connections and hellos were refused", "a stranger"]
    now += 61.0
    refusals.log(logging.WARNING, "a stranger")
    assert [text for _, _, text in lines[22:]] == ["a stranger"]
