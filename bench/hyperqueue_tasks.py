"""Many `true` as HyperQueue's tasks, run by a Python that has `hyperqueue` installed: prints the seconds they took.

Arguments: the kind of the tasks and their number. HyperQueue makes the file for a task's output when it starts the
task, here in the current directory, which must be empty. The time stamp of the last file is the end of the
measurement, because the client's wait for a job looks once a second only.

The package starts its server and its worker as threads of one process, which the worker forks for each task, and a fork
costs by the memory that the process holds. One job of 20,000 tasks with a realistic environment made that 435 MB, and a
task 31 ms of system time, so that HyperQueue did not come to its end within minutes. So tasks are submitted in jobs of
2,000, two of which are there at any time, and a finished one is forgotten; the client is a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from workload import command, environment

_SERVE = "--serve"
_PORTION = 2_000


def serve() -> None:
    """A server and a worker of two cores, until the input ends; prints where clients find them."""
    from hyperqueue.cluster import LocalCluster, WorkerConfig

    with LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=2))
        print("SERVER", cluster.cluster.server_dir, flush=True)
        sys.stdin.read()


def jobs(kind: str, count: int) -> Iterator[Any]:
    """Jobs of at most `_PORTION` tasks, `count` tasks in all."""
    from hyperqueue import Job

    for first in range(0, count, _PORTION):
        job = Job(default_env=environment(kind))
        for number in range(first, min(first + _PORTION, count)):
            # By themselves tasks of several jobs would share the files.
            job.program(command(kind, number), stdout=f"{number}.stdout", stderr=f"{number}.stderr")
        yield job


def main() -> None:
    from hyperqueue import Client

    kind, count = sys.argv[1], int(sys.argv[2])
    todo = jobs(kind, count)
    ready = next(todo)
    argv = [sys.executable, os.path.abspath(__file__), _SERVE]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        # It prints a table about itself, too.
        found = (line.split(maxsplit=1)[1].strip() for line in server.stdout if line.startswith("SERVER "))
        client = Client(next(found))
        begin = time.time()
        under_way = deque([client.submit(ready)])
        while under_way:
            ready = next(todo, None)
            if ready is not None:
                under_way.append(client.submit(ready))
            first = under_way.popleft()
            client.wait_for_jobs([first])
            client.forget(first)
        server.stdin.close()
    with os.scandir() as files:
        stamps = [file.stat().st_mtime for file in files if file.name.endswith(".stdout")]
    if len(stamps) != count:
        raise SystemExit(f"{len(stamps)} of {count} tasks left a file of their output")
    print("PEER", max(stamps) - begin)


if __name__ == "__main__":
    serve() if sys.argv[1:] == [_SERVE] else main()
