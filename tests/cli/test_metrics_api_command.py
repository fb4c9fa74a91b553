"""`headrace metrics-api start`: a process of its own in an instance, as users start it."""

from __future__ import annotations

import os
import signal
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest
from instance import start

from headrace.cli.main import headrace
from headrace.k8s.runtime.admission.certificates import make_pair

SCRIPT = """
LINE >ready 2>err & service=$!
while ! test -s ready; do kill -0 $service 2>/dev/null || { cat err; exit 1; }; sleep .02; done
PYTHON ask.py
kill $service; wait $service; echo ended $?; cat err >&2
"""
ASK = """
import json, ssl, urllib.request
url = open("ready").read().split()[1]
print(url.rpartition(":")[0])
context = ssl.create_default_context(cafile="ca.pem")
def get(path):
    return json.load(urllib.request.urlopen(url.replace("127.0.0.1", "localhost") + path, context=context))
print(len([one for one in get("")["resources"] if one["name"] == "services/mine"]))
for namespace in ("one", "two"):
    (item,) = get(f"/namespaces/{namespace}/services/numbers/mine")["items"]
    print(item["describedObject"]["namespace"], item["describedObject"]["name"], item["value"])
"""


def test_it_serves_with_tls_and_a_file_of_users(tmp_path: Path) -> None:
    pair = make_pair(["localhost"], datetime.now(timezone.utc))
    for name, text in (("cert", pair.certificate), ("key", pair.key), ("ca", pair.authority)):
        (tmp_path / f"{name}.pem").write_text(text)
    (tmp_path / "key.pem").chmod(0o644)
    (tmp_path / "mine.py").write_text("def mine(handle):\n    return int(handle.attr_get('size')) / 4\n")
    (tmp_path / "ask.py").write_text(ASK)
    line = (
        "headrace metrics-api start --host 127.0.0.1 --port 0 --ssl-certfile cert.pem --ssl-keyfile key.pem"
        " --namespace one --namespace two --service-name numbers --api-path /my --custom-metric mine.py --no-cache"
    )
    script = SCRIPT.replace("LINE", line).replace("PYTHON", sys.executable)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = start("sh", "-c", script, cwd=str(tmp_path), PATH=path)
    assert done.out.splitlines() == ["https://127.0.0.1", "1", "one numbers 250m", "two numbers 250m", "ended 0"], done
    told = "headrace-metrics-api: --ssl-keyfile key.pem: others have rights to this file, which has a key (mode 644): "
    assert done.err == f"{told}chmod 600 key.pem\n" and done.left == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--ssl-certfile cert.pem", "go together"),
        ("--ssl-certfile nosuch.pem --ssl-keyfile /dev/null", "--ssl-certfile nosuch.pem: No such file or directory"),
        ("--ssl-certfile /dev/null --ssl-keyfile nosuch.pem", "--ssl-keyfile nosuch.pem: No such file or directory"),
        ("--api-path x", "must begin with /, not x"),
        ("--custom-metric absent.py", "absent.py: FileNotFoundError"),
        ("--host 127.0.0.1 --port 0", "Unable to connect to Flux: broker socket /nosuch was not found"),
        ("--host 127.0.0.1 --port 1x", "'1x' is not a port (a number from 0 to 65535)"),
        ("--host 127.0.0.1 --port 99999", "'99999' is not a port"),
        ("--host 127.0.0.1 --port=-1", "'-1' is not a port"),
    ],
)
def test_what_cannot_be_served_is_said(
    options: str, told: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLUX_URI", "local:///nosuch")
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert headrace(["metrics-api", "start", *options.split()]) in (1, 2)
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    out, err = capfd.readouterr()
    assert told in err and "Traceback" not in err and out == ""
