"""What is said of those who are not let in, and how often."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator

import pytest
import zmq

from headrace.broker import boot
from headrace.broker import overlay_refused as refused

AUTH, PROTOCOL, NO_DETAIL = (
    *(zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL),
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
)
CRYPTO, OTHER = zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC, zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH


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
    assert refused.above(event, CRYPTO, info) == text


def test_keys_of_no_file_are_named_without_one(info: boot.BootInfo) -> None:
    info.certificate = ""
    assert refused.above(AUTH, 400, info) == "tcp://lead:8050 refused our key"
    assert refused.above(NO_DETAIL, 32, info).endswith(": no broker with the key that we were told answers there")
    assert refused.below(PROTOCOL, CRYPTO, "", info) == "connection from this host refused: its certificate is not ours"


@pytest.mark.parametrize(
    ("event", "detail", "text"),
    [
        (AUTH, 400, "connection from 10.0.0.9 refused: its key is no member's"),
        (PROTOCOL, CRYPTO, "connection from 10.0.0.9 refused: its certificate is not that of /etc/curve.cert"),
        (PROTOCOL, OTHER, "connection from 10.0.0.9 refused: it is no broker"),
        (NO_DETAIL, 32, ""),
    ],
)
def test_a_parent_names_the_address_but_not_of_who_only_looked(
    info: boot.BootInfo, event: int, detail: int, text: str
) -> None:
    assert refused.below(event, detail, "10.0.0.9", info) == text


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            yield near, far


def test_the_address_behind_a_descriptor_is_told_and_the_descriptor_stays_open(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    near, far = ends
    assert refused.address_behind(far.fileno()) == "127.0.0.1"
    near.sendall(b"x")
    assert far.recv(1) == b"x"


def test_a_descriptor_that_is_something_else_by_now_has_no_address() -> None:
    read, write = os.pipe()
    os.close(write)
    assert refused.address_behind(read) == refused.address_behind(write) == ""
    os.close(read)
    near, far = socket.socketpair()
    with near, far:
        assert refused.address_behind(near.fileno()) == ""
        assert refused.address_behind(near.fileno()) == ""
    with socket.socket() as alone:
        assert refused.address_behind(alone.fileno()) == ""


def test_a_line_comes_once_in_a_while_and_few_of_them_do() -> None:
    lines: list[tuple[int, str, str]] = []
    now = 100.0
    refusals = refused.Refusals(lambda *line: lines.append(line), lambda: now)
    for _ in range(1000):
        refusals.tell(logging.WARNING, "a stranger")
    assert lines == [(logging.WARNING, "overlay", "a stranger")]
    for number in range(1000):
        refusals.tell(logging.ERROR, f"stranger {number}")
    assert len(lines) == 20
    now += 61.0
    refusals.tell(logging.WARNING, "a stranger")
    assert [text for _, _, text in lines[20:]] == ["1980 more connections and hellos were refused", "a stranger"]
    now += 61.0
    refusals.tell(logging.WARNING, "a stranger")
    assert [text for _, _, text in lines[22:]] == ["a stranger"]
