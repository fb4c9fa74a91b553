"""Modules are taken away under a load of requests: each of these gets an answer, and what was accepted is kept."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from instance import start

# Sends requests while a module is reloaded again and again; tells how many have had no answer, how many others had
# which errno, what was accepted and is not there afterwards, and the log.
_LOAD = """
import base64, collections, hashlib, json, subprocess, sys, time
from headrace.wire.client.handle import Handle
how, topic = sys.argv[1].split(), sys.argv[2]
handle, calls = Handle(), []
job = subprocess.check_output(["flux", "submit", "true"], text=True).strip()
subprocess.check_call(["flux", "job", "wait-event", "-q", job, "clean"])

def kvs(topic, **body):
    return handle.rpc(topic, {"namespace": "primary", "flags": 0, **body})

def send(n):
    if topic == "content.store":
        return handle.rpc(topic, payload=b"%d" % n)
    if topic == "kvs.lookup":
        return kvs(topic, key="job", flags=1)
    value = {"ver": 1, "type": "val", "data": base64.b64encode(b"%d" % n).decode()}
    return kvs(topic, ops=[{"key": f"k{n}", "flags": 0, "dirent": value}])

def find(n):
    if topic == "content.store":
        return handle.rpc("content.load", payload=hashlib.sha1(b"%d" % n).digest())
    return kvs("kvs.lookup", key=f"k{n}")

for _ in range(3):
    calls += [send(len(calls) + n) for n in range(300)]
    reload = subprocess.Popen(["flux", "module", "reload", "-f", *how])
    while reload.poll() is None:
        calls += [send(len(calls) + n) for n in range(20)]
        handle.pump(0.01)
    assert reload.wait() == 0
calls += [send(len(calls) + n) for n in range(300)]

end = time.monotonic() + 60
while not all(call.done for call in calls) and time.monotonic() < end:
    handle.pump(1)
answers = [call.next_message().errnum if call.done else -1 for call in calls]
kept = [n for n, errno in enumerate(answers) if errno == 0 and topic != "kvs.lookup"]
lost = [n for n in kept if find(n).next_message(60).errnum]
log = subprocess.run(["flux", "dmesg"], capture_output=True, text=True).stdout
print(json.dumps([answers.count(-1), collections.Counter(answers), lost, log]))
"""


def told(module: str, topic: str, *options: str) -> Any:
    done = start(*options, "flux", "python", "-c", _LOAD, module, topic)
    assert (done.rc, done.left) == (0, []), done.err
    return json.loads(done.out.splitlines()[-1])


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize(
    ("module", "topic"),
    [("kvs", "kvs.lookup"), ("kvs", "kvs.commit"), ("content", "content.store"), ("--exec kvs", "kvs.commit")],
)
def test_each_request_is_answered_and_what_was_accepted_is_kept(
    module: str, topic: str, durable: bool, tmp_path: Path
) -> None:
    options = ["--test-size=1", *([f"-Sstatedir={tmp_path}"] if durable else [])]
    unanswered, errnos, lost, log = told(module, topic, *options)
    assert (unanswered, lost) == (0, []), errnos
    assert errnos.keys() <= {"0", str(errno.ENOSYS)}
    assert errnos["0"] > 600
    assert "Traceback" not in log
