"""One HyperQueue job of many `true`, run by a Python that has `hyperqueue` installed: prints the seconds it took.

Arguments: the kind of the tasks and their number. HyperQueue makes the file for a task's output when it starts the
task, here in the current directory, which must be empty. The time stamp of the last file is the end of the
measurement, because the client's wait for a job looks once a second only.
"""

from __future__ import annotations

import os
import sys
import time

from workload import command, environment


def main() -> None:
    from hyperqueue import Job
    from hyperqueue.cluster import LocalCluster, WorkerConfig

    kind, count = sys.argv[1], int(sys.argv[2])
    with LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=2))
        client = cluster.client()
        job = Job(default_env=environment(kind))
        for number in range(count):
            job.program(command(kind, number))
        begin = time.time()
        submitted = client.submit(job)
        client.wait_for_jobs([submitted])
    with os.scandir() as files:
        stamps = [file.stat().st_mtime for file in files if file.name.endswith(".stdout")]
    if len(stamps) != count:
        raise SystemExit(f"{len(stamps)} of {count} tasks left a file of their output")
    print("PEER", max(stamps) - begin)


if __name__ == "__main__":
    main()
