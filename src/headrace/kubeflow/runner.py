"""The process that runs the brokers of a job: `python -m headrace.kubeflow.runner FOLDER LOCK`.

LOCK is the descriptor of the lock of the folder. This process has a session of its own, so that no terminal ends it.
SIGTERM ends the brokers, and it with them.
"""

from __future__ import annotations

import os
import shutil
import sys

from msgspec import json

from headrace.minicluster.api.plan import Plan
from headrace.minicluster.run import local

from .folder import ENVIRONMENT, PLAN, Folder


def main(path: str, lock: str) -> int:
    held = int(lock)
    # The brokers must not hold it: it tells whether this process runs.
    os.set_inheritable(held, False)
    os.pwrite(held, str(os.getpid()).encode(), 0)
    folder = Folder(path)
    with open(folder / PLAN, "rb") as file:
        plan = json.decode(file.read(), type=Plan)
    try:
        return local.run(plan, path, lambda _line: None, folder.keep_workspace).status
    except local.StartError as exc:
        print(exc, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder / ENVIRONMENT, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
