"""The service beside that of flux-restful-api, on one broker of ours: CPU of a request, and memory.

10,000 simulated jobs have ended; each request is made some times of either, in turns, and CPU is that of the service
and of the broker together. The peer comes with the extra `test` (PyPI `flux-restful`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

from measure import Row, cpu_seconds, flux_command, pss, report

JOBS = 10_000
# (path, times, what must be reached).
REQUESTS = (("/v1/jobs?details=true&limit=1000", 20, "1/5"), ("/v1/jobs", 20, ""), ("/v1/auth", 400, ""))
# The same of ours alone.
OWN_REQUESTS = (("/v2/jobs?limit=50", 200, "3"),)
COMPAT = Path(__file__).parents[1] / "src/headrace/wire/compat/python"


class Service(NamedTuple):
    name: str
    process: subprocess.Popen[str]
    url: str


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=600) as answer:
        found: bytes = answer.read()
    return found


def ours() -> Service:
    argv = [
        os.path.join(os.path.dirname(sys.executable), "headrace"),
        "api",
        "start",
        "--port=0",
        "--auth=none",
        "--json",
    ]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return Service("ours", process, json.loads(process.stdout.readline())["url"])


def theirs(port: int = 5077) -> Service:
    argv = [sys.executable, "-m", "uvicorn", "flux_restful.main:app", "--port", str(port), "--log-level", "error"]
    process = subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(COMPAT)}, stdout=sys.stderr, text=True)
    service = Service("flux-restful-api", process, f"http://127.0.0.1:{port}")
    while process.poll() is None:
        try:
            get(f"{service.url}/v1/auth")
            return service
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the peer does not start: pip install flux-restful")


def drive(jobs: int) -> None:
    """Runs inside the instance and prints the rows as JSON."""
    flux = flux_command()
    simulated = "--setattr=exec.test.run_duration=0.001s"
    subprocess.run([flux, "submit", f"--cc=1-{jobs}", "--quiet", simulated, "true"], check=True)
    subprocess.run([flux, "queue", "drain"], check=True)
    broker = int(subprocess.run([flux, "getattr", "broker.pid"], capture_output=True, text=True, check=True).stdout)
    services = [ours(), theirs()]
    rows = [Row(f"PSS at start, {one.name}", pss(one.process.pid) / 1e6, "MB") for one in services]
    for path, times, bar in REQUESTS:
        used = dict.fromkeys(services, 0.0)
        for _ in range(times):
            for one in services:
                before = cpu_seconds(one.process.pid) + cpu_seconds(broker)
                get(one.url + path)
                used[one] += cpu_seconds(one.process.pid) + cpu_seconds(broker) - before
        for one in services:
            note = f"{used[one] / used[services[1]]:.2f} of the peer" if one is services[0] else ""
            rows.append(Row(f"{path}, {one.name}", used[one] / times * 1000, "ms CPU", bar if note else "", note))
    for path, times, bar in OWN_REQUESTS:
        before = cpu_seconds(services[0].process.pid) + cpu_seconds(broker)
        for _ in range(times):
            get(services[0].url + path)
        used_ms = (cpu_seconds(services[0].process.pid) + cpu_seconds(broker) - before) / times * 1000
        rows.append(Row(path, used_ms, "ms CPU", bar))
    begin = cpu_seconds(services[0].process.pid)
    time.sleep(30)
    rows.append(Row("idle, ours", (cpu_seconds(services[0].process.pid) - begin) / 30 * 100, "% of a core", "0.1"))
    for one in services:
        one.process.terminate()
        one.process.wait()
    print(json.dumps([row.__dict__ for row in rows]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=JOBS, help="jobs that there are")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        drive(options.count)
        return
    with tempfile.TemporaryDirectory() as folder:
        inside = [sys.executable, os.path.abspath(__file__), "--inside", f"--count={options.count}"]
        done = subprocess.run([flux_command(), "start", *inside], cwd=folder, stdout=subprocess.PIPE, check=True)
    report([Row(**row) for row in json.loads(done.stdout)], options.json)


if __name__ == "__main__":
    main()
