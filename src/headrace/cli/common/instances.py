"""Finding other instances: the parent, the root, and the one that a job runs.

`flux -p`, `flux -r`, `flux uri`, `flux proxy` and `flux jobs -R` need the URI of another broker. A job that is an
instance publishes it in its annotations as `user.uri` (a memo); an instance knows its parent's as `parent-uri`.
"""

from __future__ import annotations

import errno
import os

from headrace.cli.common.errors import CommandError
from headrace.client.handle import Handle
from headrace.spec.job_state import INACTIVE, PENDING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def retarget(hops: str) -> None:
    """Point FLUX_URI at the parent ("p", one hop a letter) or at the root instance ("r")."""
    while hops:
        handle = Handle()
        try:
            parent = handle.attr_get("parent-uri")
            # This instance is a job of its parent: the KVS namespace that this job has there.
            namespace = _optional(handle, "parent-kvs-namespace")
        except OSError as exc:
            if exc.errno != errno.ENOENT:
                raise
            return
        finally:
            handle.close()
        os.environ["FLUX_URI"] = parent
        os.environ.pop("FLUX_KVS_NAMESPACE", None)
        if namespace:
            os.environ["FLUX_KVS_NAMESPACE"] = namespace
        if hops != "r":
            hops = hops[1:]


def _optional(handle: Handle, name: str) -> str:
    try:
        return handle.attr_get(name)
    except OSError as exc:
        if exc.errno != errno.ENOENT:
            raise
        return ""


def job_uri(handle: Handle, jobid: int, shown: str) -> str:
    """The URI that running job `jobid` published. Raises CommandError when it runs no instance."""
    try:
        job: Any = handle.rpc("job-list.list-id", {"id": jobid, "attrs": ["state", "annotations"]}).get()["job"]
    except OSError as exc:
        if exc.errno == errno.ENOENT:
            raise CommandError(f"jobid {shown} not found") from None
        raise
    if job["state"] == INACTIVE:
        raise CommandError(f"jobid {shown} is not running")
    uri = job.get("annotations", {}).get("user", {}).get("uri")
    if not uri:
        if job["state"] & PENDING:
            raise CommandError(f"jobid {shown} has not started")
        raise CommandError(f"{shown}: URI not found")
    return str(uri)
