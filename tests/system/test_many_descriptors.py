"""A usual limit of open files is no limit for an instance, only for what it starts."""

from __future__ import annotations

import resource
import sys

import pytest
from instance import start

HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
# Connects so many times, in two processes, and prints what the broker's first byte was.
CONNECT = """
import errno, os, socket, sys, time
from collections import Counter
path = os.environ["FLUX_URI"].partition("://")[2]
def connected(number):
    socks = [socket.socket(socket.AF_UNIX) for _ in range(number)]
    for sock in socks:
        sock.connect(path)
    return socks, Counter(sock.recv(1)[0] for sock in socks)
number = int(sys.argv[1])
here, there = os.pipe()
socks, first = connected(number)
child = os.fork()
if child == 0:
    for sock in socks:
        sock.close()
    socks, second = connected(number)
    os.write(there, b"%d %d\\n" % (second[0], second[errno.EMFILE]))
    os._exit(0)
second = [int(word) for word in os.read(here, 100).split()]
print(first[0] + second[0], first[errno.EMFILE] + second[1])
"""


@pytest.mark.skipif(0 <= HARD < 2000, reason="no more than that may be had")
def test_an_instance_takes_what_it_may_and_gives_what_it_got():
    script = f"""
    ulimit -n; flux run sh -c 'ulimit -n'; flux exec sh -c 'ulimit -n'
    ulimit -Sn 1000
    {sys.executable} -c '{CONNECT}' 400
    flux getattr size
    """
    done = start("sh", "-c", script, prefix=("sh", "-c", 'ulimit -Sn 200; exec "$@"', "sh"))
    assert (done.err, done.left) == ("", [])
    assert done.out == "200\n200\n200\n800 0\n1\n"


def test_who_finds_no_descriptor_left_is_told_and_the_others_are_served():
    script = f"""
    {sys.executable} -c '{CONNECT}' 200
    until flux getattr size 2>/dev/null; do sleep .05; done
    flux dmesg | grep -c 'clients are refused: Too many open files'
    """
    done = start("sh", "-c", script, prefix=("sh", "-c", 'ulimit -n 250; exec "$@"', "sh"))
    assert done.left == [], done.err
    served, refused, *rest = done.out.split()
    assert 200 < int(served) < 250 and int(served) + int(refused) == 400
    assert rest == ["1", "1"]
