"""Output in files that a broker left when it was killed: that of active jobs is taken up, that of no job is removed.

The journal has the sizes of a job's logs when the job ends, or is part of a checkpoint. What was written to a file
since is in the file alone.
"""

from __future__ import annotations

import contextlib
import os

from headrace.engine.modules.job_manager.store import LOGS, Store
from headrace.formats.spec import jobid


def take_up(store: Store, highest: int) -> None:
    """Take up the files of active jobs, and remove those of jobs up to the id `highest` that the store does not know;
    0 removes none.
    """
    try:
        names = os.listdir(store.output)
    except OSError:
        return
    for file in names:
        found = _log_of(file)
        if found is None:
            continue
        id, name = found
        # A file that cannot be read or removed is no reason not to start.
        with contextlib.suppress(OSError):
            if id in store.active:
                store.take_up(id, name)
            elif id not in store and id <= highest:
                os.unlink(os.path.join(store.output, file))


def _log_of(file: str) -> tuple[int, str] | None:
    """The job and the name of the log that a file is for; None for a file of another name."""
    parts = file.split(".", 4)
    if len(parts) < 5 or parts[4] not in LOGS:
        return None
    text = ".".join(parts[:4])
    try:
        id = jobid.parse(text)
    except ValueError:
        return None
    return (id, parts[4]) if jobid.encode(id, "dothex") == text else None
