"""The KVS and its content store for tests: transactions, lookups, and the job store's service."""

from __future__ import annotations

import base64
import errno

from headrace.engine.broker.module.context import RpcError
from headrace.engine.modules.content import service as content
from headrace.engine.modules.kvs import service as kvs


def val(data: bytes) -> dict:
    return {"ver": 1, "type": "val", "data": base64.b64encode(data).decode()}


def put(key: str, data: bytes) -> dict:
    return {"key": key, "flags": 0, "dirent": val(data)}


def unlink(key: str) -> dict:
    return {"key": key, "flags": 0, "dirent": None}


def commit(*ops: dict, namespace: str = "primary", flags: int = 0) -> dict:
    return {"namespace": namespace, "flags": flags, "ops": list(ops)}


def look(key: str, flags: int = 0, namespace: str = "primary", rootref: str | None = None) -> dict:
    body = {"key": key, "namespace": namespace, "flags": flags}
    if rootref is not None:
        body["rootdir"] = {"ver": 1, "type": "dirref", "data": [rootref]}
    return body


async def value(client, key: str, **kw) -> bytes | int:
    """The value at `key`, or the error number."""
    reply = await client.call("kvs.lookup", look(key, **kw))
    return reply.errnum or base64.b64decode(reply.obj["val"]["data"])


def job_store(broker, jobs: dict) -> None:
    """The job store's service over nested dicts."""

    def lookup(msg):
        found: object = jobs
        for name in msg.obj["path"].split(".") if msg.obj["path"] else ():
            found = found.get(name) if isinstance(found, dict) else None
        if found is None:
            raise RpcError(errno.ENOENT)
        return {"dir": sorted(found)} if isinstance(found, dict) else {"val": found}

    broker.context("job-manager").service("job-store", {"lookup": lookup})


def store(broker):
    broker.load(content)
    broker.load(kvs)
    return broker.client()
