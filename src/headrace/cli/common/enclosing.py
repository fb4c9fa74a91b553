"""`flux -p` and `flux -r`: the parent and the root instance, which an instance knows as its `parent-uri`."""

from __future__ import annotations

import errno
import os

from headrace.wire.client.handle import Handle


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
