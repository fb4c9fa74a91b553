"""What readers of one job's output cost the other jobs: throughput of real jobs with and without followers, in turns.

A job writes five lines a second, and each follower reads `/v2/jobs/{id}/output?follow=true`. A user may have 64
streams, which the service is started without here, as only the owner of the job can read its output.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from api import Service
from measure import Row, cpu_seconds, flux_command, report

WITHOUT_LIMIT = """\
import sys
from headrace.service import streams
streams.MOST_OF_USER = streams.MOST
from headrace.cli.api.main import main
sys.exit(main(["start", "--port=0", "--auth=none", "--json"]))
"""
WRITER = "while :; do date; sleep .2; done"


def service() -> Service:
    process = subprocess.Popen([sys.executable, "-c", WITHOUT_LIMIT], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return Service("ours", process, json.loads(process.stdout.readline())["url"])


class Followers:
    """Connections that read one output, in a thread of their own; `lines` has how many each has read."""

    def __init__(self, url: str, job: str, number: int) -> None:
        host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
        self._request = f"GET /v2/jobs/{job}/output?follow=true HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
        self._address = host, int(port)
        self.lines = [0] * number
        self._end = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    def __enter__(self) -> Followers:
        deadline = time.monotonic() + 60
        while min(self.lines) < 5:
            if time.monotonic() > deadline:
                raise SystemExit(f"a follower reads nothing: {self.lines}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    async def _run(self) -> None:
        tasks = [asyncio.create_task(self._follow(index)) for index in range(len(self.lines))]
        while not self._end.is_set():
            await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, index: int) -> None:
        reader, writer = await asyncio.open_connection(*self._address)
        writer.write(self._request)
        try:
            while data := await reader.read(65536):
                self.lines[index] += data.count(b"UTC")
        finally:
            writer.close()


def drive(jobs: int, turns: int, number: int) -> None:
    """Runs inside the instance and prints the rows as JSON."""
    flux = flux_command()

    def run() -> float:
        begin = time.perf_counter()
        subprocess.run([flux, "submit", f"--cc=1-{jobs}", "--quiet", "--wait", "true"], check=True)
        return jobs / (time.perf_counter() - begin)

    env = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}
    submit = [flux, "submit", "sh", "-c", WRITER]
    job = subprocess.run(submit, capture_output=True, text=True, check=True, env=env).stdout.strip()
    one = service()
    run()
    alone, beside, used = [], [], []
    for _ in range(turns):
        alone.append(run())
        with Followers(one.url, job, number):
            before, began = cpu_seconds(one.process.pid), time.perf_counter()
            beside.append(run())
            used.append((cpu_seconds(one.process.pid) - before) / (time.perf_counter() - began) * 100)
    one.process.terminate()
    one.process.wait()
    subprocess.run([flux, "cancel", job], check=True)
    loss = 1 - statistics.median(with_them / without for with_them, without in zip(beside, alone))
    rows = [
        Row("jobs without followers", statistics.median(alone), "jobs/s"),
        Row(f"jobs beside {number} followers", statistics.median(beside), "jobs/s"),
        Row("loss, median of pairs", loss * 100, "%", "5"),
        Row("the service meanwhile", statistics.median(used), "% of a core"),
    ]
    print(json.dumps([row.__dict__ for row in rows]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000, help="in each turn")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--followers", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        drive(options.jobs, options.turns, options.followers)
        return
    with tempfile.TemporaryDirectory() as folder:
        given = [f"--jobs={options.jobs}", f"--turns={options.turns}", f"--followers={options.followers}"]
        inside = [sys.executable, os.path.abspath(__file__), "--inside", *given]
        done = subprocess.run([flux_command(), "start", *inside], cwd=folder, stdout=subprocess.PIPE, check=True)
    report([Row(**row) for row in json.loads(done.stdout)], options.json)


if __name__ == "__main__":
    main()
