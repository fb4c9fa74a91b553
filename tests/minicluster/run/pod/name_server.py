"""A name server (DNS over UDP) for pods: `name_server.py ADDRESS FILE`, where FILE has lines as /etc/hosts, read anew
for each question. Names that are not in it do not exist."""

from __future__ import annotations

import socket
import struct
import sys
from pathlib import Path

_A, _AAAA = 1, 28


def answer(query: bytes, hosts: str) -> bytes:
    """The answer to a question for one name (RFC 1035)."""
    at, labels = 12, []
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += 1 + query[at]
    question = query[12 : at + 5]
    (kind,) = struct.unpack("!H", query[at + 1 : at + 3])
    known = {name: words[0] for words in map(str.split, hosts.splitlines()) for name in words[1:]}
    address = known.get(".".join(labels))
    family = socket.AF_INET6 if address and ":" in address else socket.AF_INET
    found = address is not None and kind == (_AAAA if family == socket.AF_INET6 else _A)
    flags = 0x8580 if address is not None else 0x8583
    head = query[:2] + struct.pack("!5H", flags, 1, int(found), 0, 0)
    if not found or address is None:
        return head + question
    packed = socket.inet_pton(family, address)
    return head + question + struct.pack("!3HIH", 0xC00C, kind, 1, 1, len(packed)) + packed


def main(address: str, path: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((address, 53))
        print("ready", flush=True)
        while True:
            query, asker = sock.recvfrom(512)
            sock.sendto(answer(query, Path(path).read_text()), asker)


if __name__ == "__main__":
    main(*sys.argv[1:])
