"""Command lines that no recording holds, against an instance of two brokers: what they print and their status."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ID = "ƒ[1-9A-Za-z]+"

# (line, status, pattern of all its output)
LINES = [
    ("flux submit --cc=1-3 --wait --watch -l echo hi | sort", 0, f"({ID}\n|{ID}: 0: hi\n){{6}}"),
    ("flux bulksubmit --wait --watch echo {} ::: a b | sort", 0, f"a\nb\n({ID}\n){{2}}"),
    ("flux job last '[:2]' | wc -l", 0, "2\n"),
    ("flux job last '[x]'", 1, r"flux-job: could not parse python-style slice expression '\[x\]': .*\n"),
    ("flux submit --flags=waitable false; flux job wait --all", 1, f"{ID}\nflux-job: {ID}: .*exit code 1\n"),
    ("flux job wait", 2, "flux-job: there are no more waitable jobs\n"),
    ("flux exec -l echo x | sort", 0, "0: x\n1: x\n"),
    ("echo in | flux exec cat", 0, "in\nin\n"),
    ("flux exec sh -c 'exit 3'", 3, r"\[0-1\]: Exit 3\n"),
    ("flux exec -q sh -c 'kill -TERM $$'", 143, ""),
    ("(flux exec -r1 yes; echo $? >&2) | head -1", 0, "y\n141\n"),
    ("flux submit --dry-run true | flux job submit", 0, f"{ID}\n"),
    ("flux job memo $(flux job last) a=1", 1, "flux-job: memo: job is inactive\n"),
    ("flux job status --json $(flux job last)", 0, r'\{"id":.*"waitstatus":0,"result":1\}\n'),
    ("flux job eventlog -T offset $(flux job last) | head -1", 0, "0.000000 submit userid=.*\n"),
    ("flux run -v true 2>&1", 0, f"jobid: {ID}\n"),
    ("echo x | flux run --input=1 -n2 -l cat", 0, "1: x\n"),
    ("yes | head -c 5000000 | flux run head -1", 0, "y\n"),
    ("yes | head -c 5000000 | flux run wc -c", 0, "5000000\n"),
    ("flux job timeleft -H", 0, "infinity\n"),
    ("flux job taskmap --to=pmi '[[0,2,1,1]]'", 0, r"\(vector,\(0,2,1\)\)\n"),
    ("flux -p getattr size", 0, "2\n"),
    ("flux event pub -l a.b '{\"x\":1}'", 0, ""),
    ("flux content load $(echo x | flux content store)", 0, "x\n"),
    ("flux module stats --parse=jobs.running job-list", 0, "0\n"),
    ("flux resource drain 1 broken; flux uptime | sed 's/.*owner/owner/'", 0, "owner .*,  size 2,  1 drained\n"),
    ("flux resource status -s drained -no '{state} {nnodes}'", 0, "drained 1\n"),
    ("flux resource undrain 1", 0, ""),
    ("flux queue stop -m x; flux uptime | tail -1; flux queue start --quiet", 0, ".*stopped: x\n  scheduler stopped\n"),
    ("flux queue list -no '{nnodes} {free.nnodes}'", 0, "2 2\n"),
    ("flux uri pid:$$ | cut -c1-9", 0, "local:///\n"),
    ("flux uri pid:$(flux getattr broker.pid) | cut -c1-9", 0, "local:///\n"),
    (
        "flux uri pid:$(flux exec -r1 flux getattr broker.pid)",
        1,
        r"flux-uri: ERROR: PID \d+ is a flux-broker and no child found\n",
    ),
    ("flux uri $(flux job last)", 1, f"flux-uri: ERROR: jobid {ID} is not running\n"),
    ("flux jobs -a --since=-1h -no '{name}' -c1", 0, ".*\n"),
    ("flux jobs --since=nonsense", 1, 'flux-jobs: ERROR: Invalid datetime: "nonsense"\n'),
    ("flux kvs get --watch --waitcreate --count=1 later & sleep .2; flux kvs put later=5; wait", 0, "5\n"),
    ("flux kvs put -r raw=abc; flux kvs get -r raw", 0, "abc"),
    ("flux proxy $FLUX_URI flux getattr rank", 0, "0\n"),
    ("flux keygen cert && grep -c key cert && stat -c %a cert", 0, "\\d+\n600\n"),
    ("flux job kill 1", 1, "flux-job: kill 1: unknown job id\n"),
    ("flux cancel 1", 1, "flux-cancel: ERROR: ƒ2: unknown job id\n"),
    ("flux job attach 1", 1, "flux-job: ƒ2: .*\n"),
    ("FLUX_HANDLE_ROLEMASK=0x2 FLUX_HANDLE_USERID=9999 flux queue stop", 1, "flux-queue: ERROR: .*\n"),
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    folder = tmp_path_factory.mktemp("commands")
    lines, home, results = folder / "lines.jsonl", folder / "home", folder / "results.jsonl"
    home.mkdir()
    lines.write_text("".join(json.dumps({"command": line}) + "\n" for line, _, _ in LINES))
    run_in_instance(sys.executable, str(HERE / "recorded_runner.py"), str(lines), str(home), str(results))
    return [json.loads(line) for line in results.read_text().splitlines()]


def run_in_instance(*program: str) -> subprocess.CompletedProcess[bytes]:
    """Run a program as the initial program of an instance of two brokers."""
    flux = shutil.which("flux", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    env = {key: value for key, value in os.environ.items() if not key.startswith("FLUX_")}
    return subprocess.run(
        [flux, "start", "--test-size=2", *program],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("index", range(len(LINES)), ids=[line[:50] for line, _, _ in LINES])
def test_line_prints_and_ends_as_it_should(index, outcomes):
    _, status, pattern = LINES[index]
    assert index < len(outcomes), "the instance ended before this line"
    printed = outcomes[index]["stdout"] + outcomes[index]["stderr"]
    assert re.fullmatch(pattern, printed), printed
    assert outcomes[index]["rc"] == status


_TYPIST = """
import os, pty, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.environ["PS1"] = "next: "
    os.execvp("flux", ["flux", "run", "-o", "pty.interactive", "sh"])
seen = b""
def until(text):
    global seen
    while text not in seen:
        seen += os.read(fd, 4096)
until(b"next: ")
os.write(fd, b"tty; echo hel''lo\\n")
until(b"hello")
os.write(fd, b"exit 7\\n")
try:
    while data := os.read(fd, 4096):
        seen += data
except OSError:
    pass
print(seen.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_terminal_is_joined_to_the_jobs_terminal():
    done = run_in_instance(sys.executable, "-c", _TYPIST)
    assert b"/dev/pts/" in done.stdout
    assert b"exit code 7" in done.stdout
    assert done.returncode == 7
