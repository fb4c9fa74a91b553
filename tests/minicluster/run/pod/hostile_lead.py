"""A lead that breaks the rules of the channel: `hostile_lead.py CERTIFICATE ADDRESS HOW` listens there with the key
pair in the file, prints its port, and answers each request by what HOW says.

It needs no more of Headrace than is in a pod.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import zmq

from headrace.formats.spec.curve_certificate import key_pair

HOW = (
    *("strays", "states", "large", "larger", "parts", "junk", "deep", "endless", "constant", "types"),
    *("hosts", "unhashable"),
)


def answers(how: str, id: int) -> Iterator[list[bytes]]:
    """Messages, each in its parts."""
    state = {"id": id, "state": "running", "brokers_up": 1}
    if how == "strays":
        yield from itertools.repeat([b'{"id":-5}'])
    elif how == "states":
        yield from ([json.dumps({**state, "brokers_up": number}).encode()] for number in itertools.count())
    elif how == "large":
        yield from itertools.repeat([json.dumps({"id": -5, "text": "x" * 60_000}).encode()])
    elif how == "larger":
        yield from itertools.repeat([b" " * 300_000])
    elif how == "parts":
        yield [b"x" * 60_000] * 2000
    elif how == "junk":
        yield [b"\xff\x00"]
    elif how == "deep":
        yield [b"[" * 60_000]
    elif how == "endless":
        yield [b'{"id": 1, "brokers_up": %s}' % (b"9" * 50_000)]
    elif how == "constant":
        yield [b'{"id": %d, "idle_since": NaN}' % id]
    elif how == "types":
        yield [json.dumps({**state, "brokers_up": "many"}).encode()]
    elif how == "hosts":
        yield [json.dumps({**state, "silent": "h[0-999999]" * 2000}).encode()]
    elif how == "unhashable":
        yield from itertools.repeat([b'{"id": {}}'])


def main(certificate: str, address: str, how: str) -> None:
    sock = zmq.Context().socket(zmq.ROUTER)
    sock.curve_publickey, sock.curve_secretkey = key_pair(Path(certificate).read_text())
    sock.curve_server = True
    sock.setsockopt(zmq.ROUTER_MANDATORY, 1)
    # libzmq does not wake a send that waits for a peer which then goes.
    sock.sndtimeo = 100
    sock.bind(address)
    print(sock.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2], flush=True)
    while True:
        peer, data = sock.recv_multipart()
        # Until the operator has closed the connection.
        with contextlib.suppress(zmq.ZMQError):
            for parts in answers(how, json.loads(data)["id"]):
                sock.send_multipart([peer, *parts])


if __name__ == "__main__":
    main(*sys.argv[1:])
