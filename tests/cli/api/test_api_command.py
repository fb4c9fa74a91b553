"""`headrace api start`: a process of its own in an instance, as users start it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from instance import start

from headrace.cli.main import headrace
from headrace.k8s.runtime.admission.certificates import make_pair

RUNS = "The service runs until it is interrupted (Ctrl-C). `headrace api url` prints a new address."
# Beginning of a script in an instance: starts the service, and waits until it is ready or has ended.
SERVE = """
LINE >ready 2>err & service=$!
while ! test -s ready; do kill -0 $service 2>/dev/null || { cat err; exit 1; }; sleep .02; done
"""


def in_instance(tmp_path: Path, script: str, line: str, **env: str) -> Any:
    """What a script prints beside the service that `line` starts, which is told to end then."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ending = "\nkill $service; wait $service; echo ended $?; cat err >&2"
    done = start("sh", "-c", SERVE.replace("LINE", line) + script + ending, cwd=str(tmp_path), PATH=path, **env)
    assert done.left == []
    return done


ASK = f"""{sys.executable} - <<'end'
import json, urllib.request
ready = json.load(open("ready"))
request = urllib.request.Request(ready["url"] + "/v1/nodes", headers={{"Authorization": "Bearer " + ready["token"]}})
print(sorted(ready), len(json.load(urllib.request.urlopen(request))["nodes"]), ready["url"].rpartition(":")[0])
opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
print("<h1>Jobs</h1>" in opener.open(ready["login"]).read().decode(), opener.open(ready["login"]).status)
try:
    urllib.request.urlopen(ready["login"])
except urllib.error.HTTPError as exc:
    print(exc.code)
end"""


def test_it_says_where_it_is_serves_and_ends_in_order(tmp_path: Path) -> None:
    done = in_instance(tmp_path, ASK, "headrace api start --port 0 --json")
    assert done.out.splitlines() == ["['login', 'token', 'url'] 1 http://127.0.0.1", "True 200", "401", "ended 0"]
    assert done.err == ""


def test_without_json_it_prints_the_address_to_open(tmp_path: Path) -> None:
    done = in_instance(
        tmp_path, "cat ready", "headrace api start --port=0 --host=localhost --auth=token", FLUX_SECRET_KEY="short"
    )
    first, runs, last = done.out.splitlines()
    assert (
        runs == RUNS and first.startswith("Open http://localhost:") and "/login?token=" in first and last == "ended 0"
    )
    assert "FLUX_SECRET_KEY is short" in done.err


def test_a_stream_does_not_hold_up_the_end(tmp_path: Path) -> None:
    script = f"""{sys.executable} - $service <<'end'
import json, os, signal, sys, urllib.request
url = json.load(open("ready"))["url"]
call = urllib.request.Request(url + "/v1/jobs/submit?command=sh+-c+'echo+one;sleep+1000'", method="POST")
id = json.load(urllib.request.urlopen(call))["id"]
stream = urllib.request.urlopen(f"{{url}}/v1/jobs/{{id}}/output/stream")
print(stream.readline())
os.kill(int(sys.argv[1]), signal.SIGINT)
try:
    stream.read()
except Exception as exc:
    print(type(exc).__name__)
end"""
    done = in_instance(tmp_path, script, "headrace api start --port=0 --json --auth=none")
    assert done.out.splitlines() == ["b'one\\n'", "IncompleteRead", "ended 0"]
    assert "Traceback" not in done.err and "every user of this machine" in done.err


def test_a_unix_socket_is_its_owners_alone_and_goes_with_the_service(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "api"))
    script = f"""{sys.executable} - <<'end'
import os, socket, stat
with socket.socket(socket.AF_UNIX) as one:
    one.connect("api")
    one.sendall(b"GET /v1/jobs HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n")
    print(one.makefile("rb").readline(), oct(os.stat("api").st_mode))
end
cat ready"""
    done = in_instance(tmp_path, script, "headrace api start --socket ./api --auth none")
    where = tmp_path / "api"
    told = [r"b'HTTP/1.1 200 OK\r\n' 0o140600", f"Open http://localhost through {where}", RUNS, "ended 0"]
    assert done.out.splitlines() == told and done.err == "" and not where.exists()


def test_the_environment_says_what_options_do_not(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = in_instance(
        tmp_path, "cat ready", "headrace api start", HOST="127.0.0.1", PORT=str(port), FLUX_REQUIRE_AUTH="false"
    )
    assert done.out == f"Open http://127.0.0.1:{port}\n{RUNS}\nended 0\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("headrace api start --host 0.0.0.0", "host '0.0.0.0' can be reached from other machines"),
        ("headrace api start --host ::", "host '::' can be reached from other machines"),
        ("headrace api start --host no.such.invalid", "host 'no.such.invalid': "),
        ("headrace api start --port 0 --experiments nosuch", "--experiments nosuch: is not a folder"),
        ("headrace api start --port 0", "Unable to connect to Flux: broker socket /nosuch was not found"),
        ("headrace api start --auth proxy", "--auth proxy trusts every client, and every user"),
        ("headrace api start --auth proxy --host 127.0.0.1", "--auth proxy trusts every client"),
        *(
            (
                f"headrace api start --port 0 --auth {auth} {option} x",
                f"{option} is for --auth {kinds}, and has no effect with --auth {auth}",
            )
            for auth in ("token", "none", "users", "pam")
            for option, kinds in (("--database", "users or proxy or pam"), ("--proxy-header", "proxy"))
            if auth not in kinds
        ),
        (
            "headrace api start --port 0 --database x",
            "--database is for --auth users or proxy or pam, and has no effect with --auth token",
        ),
        (
            "headrace api start --port 0 --unknown-users add",
            "--unknown-users is for --auth proxy, and has no effect with --auth token",
        ),
        ("headrace api start --socket api --port 0", "--port is for --host: a --socket has no port"),
        ("headrace api start --socket api --name x", "--name is for --host: a --socket accepts every host name"),
        ("headrace api start --socket /nosuch/socket", "/nosuch/socket: No such file or directory"),
        (
            "headrace api start --socket api --auth proxy --proxy-header Cookie",
            "--proxy-header is 'Cookie', which browsers and proxies send themselves",
        ),
        ("headrace api start --socket /dev/null", "/dev/null: Address already in use"),
        ("headrace api start --port 0 --audit /nowhere/a", "/nowhere/a: No such file or directory"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(
    line: str, told: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLUX_URI", "local:///nosuch")
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert headrace(line.split()[1:]) == 1
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    out, err = capfd.readouterr()
    assert err.startswith(f"headrace-api: {told}") and err.count("\n") == 1 and out == ""


def test_the_port_of_the_environment_is_one(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PORT", "65536")
    assert headrace(["api", "start"]) == 1
    assert capfd.readouterr().err == "headrace-api: PORT is '65536', it must be a number from 1 to 65535\n"


def test_a_port_that_is_taken_is_named(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert headrace(["api", "start", "--port", str(port)]) == 1
    assert capfd.readouterr().err == f"headrace-api: 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize("line", ["--port x", "--port 65536", "--auth nosuch", "--host x --socket y"])
def test_wrong_arguments(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert headrace(["api", "start", *line.split()]) == 2
    assert "headrace api start: error: " in capfd.readouterr().err


@pytest.mark.parametrize("package", ["fastapi", "httptools", "uvicorn"])
def test_the_extra_is_named_where_it_is_missing(package: str) -> None:
    code = f"import sys; sys.modules['{package}'] = None; from headrace.cli.main import headrace; headrace()"
    done = subprocess.run([sys.executable, "-c", code, "api", "start"], capture_output=True, text=True, check=False)
    assert f"{package} is missing): pip install '.[api]' in a copy of the repository" in done.stderr


@pytest.fixture
def certificate(tmp_path: Path) -> None:
    """A certificate for localhost, its key, and the authority's certificate."""
    pair = make_pair(["localhost"], datetime.now(timezone.utc))
    for name, text in (("cert", pair.certificate), ("key", pair.key), ("ca", pair.authority)):
        (tmp_path / f"{name}.pem").write_text(text)
    (tmp_path / "key.pem").chmod(0o600)


ASK_TLS = f"""{sys.executable} - <<'end'
import json, ssl, urllib.request
ready = json.load(open("ready"))
port = ready["url"].rpartition(":")[2]
opener = urllib.request.build_opener(
    urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile="ca.pem")),
    urllib.request.HTTPCookieProcessor(),
)
token = ready["login"].rpartition("=")[2]
print(ready["url"].rpartition(":")[0], opener.open(f"https://localhost:{{port}}/login?token={{token}}").status)
print([one.secure for handler in opener.handlers for one in getattr(handler, "cookiejar", ())])
for name, expected in ("hpc.example.org", 200), ("other.example.org", 421):
    request = urllib.request.Request(f"https://localhost:{{port}}/jobs", headers={{"Host": name}})
    try:
        print(name, opener.open(request).status)
    except urllib.error.HTTPError as exc:
        print(name, exc.code)
end"""


@pytest.mark.usefixtures("certificate")
def test_with_a_certificate_other_machines_are_served(tmp_path: Path) -> None:
    line = (
        "headrace api start --port 0 --host 0.0.0.0 --name hpc.example.org --tls-cert cert.pem --tls-key key.pem --json"
    )
    done = in_instance(tmp_path, ASK_TLS, line)
    first, cookies, *names, last = done.out.splitlines()
    assert (first, cookies, last) == ("https://0.0.0.0 200", "[True]", "ended 0"), done.err
    assert names[1] == "other.example.org 421" and names[0].startswith("hpc.example.org ")
    assert names[0] != "hpc.example.org 421"


def test_behind_a_proxy_the_scheme_is_the_proxys(tmp_path: Path) -> None:
    script = f"""{sys.executable} - <<'end'
import json, http.client
ready = json.load(open("ready"))
call = http.client.HTTPConnection("127.0.0.1", int(ready["url"].rpartition(":")[2]))
path = "/login?token=" + ready["login"].rpartition("=")[2]
call.request("GET", path, headers={{"Host": "hpc.example.org", "X-Forwarded-Proto": "https"}})
answer = call.getresponse()
print(answer.status, "Secure" in answer.headers["set-cookie"])
end"""
    line = "headrace api start --port 0 --host 0.0.0.0 --behind-proxy --name hpc.example.org --json"
    assert in_instance(tmp_path, script, line).out.splitlines() == ["303 True", "ended 0"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("--host 0.0.0.0", "there is no TLS: give --tls-cert and --tls-key, or --behind-proxy"),
        ("--tls-cert cert.pem", "--tls-cert and --tls-key go together"),
        ("--tls-cert nosuch.pem --tls-key key.pem", "--tls-cert nosuch.pem: No such file"),
        ("--tls-cert /dev/null --tls-key nosuch.pem", "--tls-key nosuch.pem: No such file"),
        ("--tls-cert /dev/null --tls-key /dev/null", "--tls-cert /dev/null, --tls-key /dev/null: "),
        ("--host 0.0.0.0 --behind-proxy --auth none", "--auth none is for this machine only"),
    ],
)
def test_what_would_not_be_safe_is_refused(capsys: pytest.CaptureFixture[str], options: str, why: str) -> None:
    assert headrace(["api", "start", "--port", "0", *options.split()]) == 1
    assert why in capsys.readouterr().err


def test_a_store_in_no_folder_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = f"{tmp_path}/nosuch/users"
    assert headrace(["api", "start", "--port", "0", "--auth", "users", "--database", store]) == 1
    assert capsys.readouterr().err == f"headrace-api: {store}: no folder {tmp_path}/nosuch for the store of users\n"


@pytest.mark.usefixtures("certificate")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o666])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int, capsys: pytest.CaptureFixture[str]) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    key.chmod(mode)
    assert headrace(["api", "start", "--port", "0", "--tls-cert", str(cert), "--tls-key", str(key)]) == 1
    told = f"headrace-api: --tls-key {key}: others have rights to this file, which has a key (mode {mode:o}): chmod 600"
    assert capsys.readouterr().err == f"{told} {key}\n"
