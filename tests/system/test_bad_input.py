"""Hostile input: frames at the local socket, bytes and strangers at the tree's port. The broker stays up."""

from __future__ import annotations

import sys

import pytest
from instance import start

import seeds
from sizes import size

FUZZ = r"""
import os, random, socket, sys
from headrace.wire.client.handle import Handle
from headrace.formats.spec import message as m
seed, count = int(sys.argv[1]), int(sys.argv[2])
dice = random.Random(seed)
path = os.environ["FLUX_URI"][len("local://"):]
pid = int(Handle().attr_get("broker.pid"))
topics = ["job-manager.list", "job-ingest.submit", "kvs.commit", "kvs.lookup", "job-list.list", "resource.drain",
          "rexec.exec", "config.load", "event.publish", "groups.join", "overlay.health", "job-info.lookup",
          "content.store", "kvs-watch.lookup", "job-manager.raise", "attr.set", "log.append", "service.add", "x", ""]
values = [None, 0, -1, 2**63, 1e300, "", "x" * 200, [], [[]], {}, {"a": 1}, True, "0-3", "\ud800"]
keys = ["id", "key", "ops", "flags", "namespace", "J", "cmd", "name", "topic", "attrs", "max_entries", "rank",
        "targets", "idset", "type", "severity", "constraint", "matchtag", "payload", "value", "service", "path", "keys"]

def body():
    obj = {dice.choice(keys): dice.choice(values) for _ in range(dice.randrange(5))}
    return obj

def frame():
    kind = dice.choice([m.REQUEST] * 8 + [m.RESPONSE, m.EVENT, m.CONTROL])
    flags = m.FLAG_ROUTE | dice.choice([0, 0, m.FLAG_STREAMING, m.FLAG_NORESPONSE])
    nodeid = dice.choice([m.NODEID_ANY, m.NODEID_ANY, 0, 7])
    msg = m.Message(kind, dice.choice(topics), None, flags, m.USERID_UNKNOWN, 0, nodeid, dice.randrange(1, 99))
    if kind == m.RESPONSE:
        msg.routes = [b"nobody", bytes([dice.randrange(1, 256)]) * 9]
    if dice.random() < 0.7:
        import json
        msg._payload = json.dumps(body()).encode() + b"\0"
    elif dice.random() < 0.5:
        msg._payload = dice.randbytes(dice.randrange(80))
    data = bytearray(m.frame(msg))
    if dice.random() < 0.15:
        for _ in range(dice.randrange(1, 4)):
            data[dice.randrange(len(data))] = dice.randrange(256)
    return bytes(data)

def rss():
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def client():
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    sock.settimeout(0.0)
    return sock

sock, first = client(), 0
for sent in range(count):
    try:
        sock.settimeout(5.0)
        sock.sendall(frame() if dice.random() < 0.97 else dice.randbytes(dice.randrange(1, 100)))
        sock.settimeout(0.0)
        while sock.recv(1 << 16):
            pass
        raise OSError
    except BlockingIOError:
        pass
    except OSError:
        sock.close()
        sock = client()
    if sent % 200 == 0:
        sock.close()
        sock = client()
    if sent == count // 10:
        Handle().attr_get("size")
        first = rss()
Handle().attr_get("size")
print("RSS", first, rss())
"""


@pytest.mark.soak
def test_mutated_frames_at_the_local_socket_cost_nobody_else_anything(tmp_path):
    count = size("frames")
    seed = seeds.seed()
    program = tmp_path / "fuzz.py"
    program.write_text(FUZZ)
    script = f"{sys.executable} {program} {seed} {count} && flux run echo alive"
    done = start("-Slog-stderr-level=0", script)
    assert done.rc == 0, f"seed {seed}: {done.err[-2000:]}"
    *_, grew, alive = done.out.splitlines()
    print(f"{count} frames: {grew}")
    assert alive == "alive"
    first, last = map(int, grew.split()[1:])
    assert last < 1.05 * first, f"seed {seed}: {first >> 10} KiB became {last >> 10} KiB"
    assert not done.left


STRANGER = r"""
import contextlib, os
import zmq
from headrace.wire.client.handle import Handle
from headrace.formats.spec import message as m
endpoint = Handle().attr_get("tbon.endpoint")
path = endpoint[len("ipc://"):]
import socket
for _ in range(50):
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(path)
        raw.sendall(os.urandom(200))
context = zmq.Context()
def knock(secure):
    sock = context.socket(zmq.DEALER)
    sock.linger = 0
    sock.routing_id = b"stranger"
    if secure:
        sock.curve_publickey, sock.curve_secretkey = zmq.curve_keypair()
        sock.curve_serverkey = zmq.curve_keypair()[0]
    sock.connect(endpoint)
    hello = m.encode_parts(m.request("overlay.hello", {"rank": 1, "uuid": "stranger"}, matchtag=1))
    # Where the session has ended already there is no pipe, a send would wait for ever, and nobody answers.
    with contextlib.suppress(zmq.Again):
        sock.send_multipart(hello, zmq.NOBLOCK)
    answered = sock.poll(400)
    sock.close()
    return bool(answered)
print(knock(False), knock(True))
"""


def test_a_stranger_at_the_trees_port_gets_no_answer(tmp_path):
    program = tmp_path / "stranger.py"
    program.write_text(STRANGER)
    done = start("--test-size=2", f"{sys.executable} {program}; flux run -N2 hostname | wc -l; flux overlay status")
    lines = done.out.splitlines()
    assert lines[0] == "False False", done.err
    assert lines[1] == "2"
    assert lines[2].endswith("full")
    assert not done.left


def test_an_eventlog_that_is_overwritten_in_the_kvs_ends_its_followers_with_an_error() -> None:
    done = start(
        """
        id=$(LC_ALL=C flux submit --urgency=hold true); key=$(flux job id --to=kvs $id).eventlog
        flux job attach $id & attach=$!
        while [ $(flux module stats -p watchers job-info) -lt 1 ]; do flux kvs put a=1; done
        flux kvs put $key=foo; wait $attach; echo $?
        flux job info $id eventlog; echo $?
        flux kvs unlink $key; flux cancel $id; flux job info $id eventlog | grep -c clean
        """
    )
    assert done.out == "1\n1\n1\n"
    attach, info = done.err.splitlines()
    assert attach.endswith("the eventlog was overwritten in the KVS")
    assert info == "flux-job: error parsing eventlog"
