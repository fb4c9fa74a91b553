"""Sources of an instance's resources: its configuration, the enclosing job, or discovery on all nodes.

The configuration takes precedence, because an administrator wrote it. Inside a job, the job's R sets the limits.
Otherwise each broker counts its own node, and the counts are sent up the tree.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from headrace.engine.broker.module.context import RpcError
from headrace.formats.spec import jobid
from headrace.formats.spec import message as m
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.os_error import reason
from headrace.formats.spec.rset import ResourceSet, RsetError

_FALLING_BACK = "R of the enclosing job cannot be followed: falling back to job-info.lookup"
# One counted node: rank, host name as known to its broker, cores and GPUs as idsets.
Found = list[Any]


def configured(config: dict[str, Any], hosts: list[str], bootstrapped: bool) -> ResourceSet | None:
    """R from the `[resource]` table; None if the table has no resources.

    Nodes get the ranks of the brokers on `hosts`, if `hosts` contains all hosts of R. If `bootstrapped`, `hosts` are
    from a `[bootstrap]` table, and any other host in R is an error. Raises RpcError(EINVAL) that names the file or
    field.
    """
    rset, field = _unranked(config)
    if rset is None:
        return None
    try:
        return rset.ranked_by(hosts)
    except RsetError as exc:
        if bootstrapped:
            raise RpcError(errno.EINVAL, f"{field}: {exc} (bootstrap.hosts)") from None
        return rset


def _unranked(config: dict[str, Any]) -> tuple[ResourceSet | None, str]:
    """R as written in the `[resource]` table, and the field that defines it. Raises RpcError."""
    table = config.get("resource", {})
    if not isinstance(table, dict):
        raise RpcError(errno.EINVAL, "resource: must be a table")
    if "config" in table:
        try:
            return ResourceSet.from_config(table["config"]).replace(scheduling=_scheduling(table)), "resource.config"
        except RsetError as exc:
            raise RpcError(errno.EINVAL, f"error parsing [resource.config] array: {exc}") from None
    if "path" in table:
        if not isinstance(table["path"], str):
            raise RpcError(errno.EINVAL, f"resource.path: must be the name of a file, not {table['path']!r}")
        return from_file(table["path"]), "resource.path"
    return None, ""


def queues_without_hosts(config: dict[str, Any], rset: ResourceSet) -> list[tuple[str, str]]:
    """Names and `hosts` of the queues in `config` without a host in `rset`."""
    found = []
    queues = config.get("queues", {})
    for name, table in queues.items() if isinstance(queues, dict) else ():
        hosts = table.get("hosts", "all") if isinstance(table, dict) else "all"
        # Invalid values are ignored here, because the job manager refuses them.
        with contextlib.suppress(ValueError, TypeError):
            if hosts != "all" and set(rset.hosts).isdisjoint(Hostlist.parse(hosts)):
                found.append((name, hosts))
    return found


def _scheduling(table: dict[str, Any]) -> Any:
    """The contents of the file named by `scheduling` in the table; None without it. Raises RpcError."""
    path = table.get("scheduling")
    if path is None:
        return None
    if not isinstance(path, str):
        raise RpcError(errno.EINVAL, f"resource.scheduling: must be the name of a file, not {path!r}")
    try:
        with open(path, encoding="utf-8") as handle:
            return json.load(handle)
    except (OSError, ValueError, RecursionError) as exc:
        why = reason(exc) if isinstance(exc, OSError) else str(exc)
        raise RpcError(errno.EINVAL, f"error loading resource.scheduling: {path}: {why}") from None


def from_file(path: str) -> ResourceSet:
    """R from a JSON file. Raises RpcError. If the file cannot be opened, the error has Flux's text."""
    try:
        with open(path, encoding="utf-8") as handle:
            text = handle.read()
    except (OSError, UnicodeDecodeError) as exc:
        code = exc.errno or errno.EIO if isinstance(exc, OSError) else errno.EINVAL
        raise RpcError(code, f"{path}:-1 unable to open {path}: {reason(exc)}") from None
    try:
        return ResourceSet.from_obj(json.loads(text))
    except json.JSONDecodeError as exc:
        raise RpcError(errno.EINVAL, f"{path}:{exc.lineno} {exc.msg}") from None
    except (RsetError, RecursionError) as exc:
        raise RpcError(errno.EINVAL, f"{path}: {exc}") from None


def from_xml_folder(path: str) -> ResourceSet:
    """R from a folder with an hwloc topology `RANK.xml` for each node, as written by `lstopo --of xml`.

    Cores and GPUs have their logical numbers. Raises RpcError that names the invalid file.
    """
    try:
        names = sorted(name for name in os.listdir(path) if name.endswith(".xml"))
    except OSError as exc:
        raise RpcError(exc.errno or errno.EIO, f"{path}: {exc.strerror}") from None
    if not names:
        raise RpcError(errno.ENOENT, f"{path}: there is no RANK.xml file in it")
    found = [_from_xml(os.path.join(path, name)) for name in names]
    return gathered(found, {rank: host for rank, host, *_ in found})


def _from_xml(path: str) -> Found:
    name = os.path.basename(path)[: -len(".xml")]
    if not name.isdecimal():
        raise RpcError(errno.EINVAL, f"{path}: the file's name must be a rank, as in 0.xml")
    # Imported here, because few instances read XML.
    from headrace.formats.spec import hwloc

    try:
        node = hwloc.read(path)
    except hwloc.HwlocError as exc:
        raise RpcError(errno.EINVAL, str(exc)) from None
    return [int(name), node.host or f"node{name}", str(Idset(range(node.cores))), str(Idset(range(node.gpus)))]


def gathered(found: Iterable[Found], hosts: Mapping[int, str]) -> ResourceSet:
    """R of the counted nodes, with the host names of their ranks from `hosts`. Raises RsetError."""
    groups: dict[tuple[str, str], list[int]] = {}
    ranks: list[int] = []
    for rank, _host, cores, gpus in found:
        groups.setdefault((cores, gpus), []).append(rank)
        ranks.append(rank)
    r_lite = []
    for (cores, gpus), members in groups.items():
        children = {"core": cores, "gpu": gpus} if gpus else {"core": cores}
        r_lite.append({"rank": str(Idset(members)), "children": children})
    nodelist = str(Hostlist([hosts[rank] for rank in sorted(ranks)]))
    execution = {"R_lite": r_lite, "starttime": 0.0, "expiration": 0.0, "nodelist": [nodelist]}
    return ResourceSet.from_obj({"version": 1, "execution": execution})


def like_most(found: Iterable[Found], ranks: Idset) -> list[Found]:
    """Assumed nodes for `ranks`, with the most frequent resources of the nodes in `found`."""
    counts = Counter((cores, gpus) for _rank, _host, cores, gpus in found)
    cores, gpus = counts.most_common(1)[0][0]
    return [[rank, "", cores, gpus] for rank in ranks]


def agrees(rset: ResourceSet, found: Found) -> bool:
    """True if R has exactly the cores and GPUs that were counted on a node."""
    rank, _host, cores, gpus = found
    return (rset.ids(rank, "core"), rset.ids(rank, "gpu")) == (Idset.parse(cores), Idset.parse(gpus))


def for_sub_instance(parent_r: dict[str, Any], hosts: list[str]) -> ResourceSet | None:
    """The job's R with this instance's ranks; None unless each node has one broker. Raises RsetError.

    The scheduling key is not changed: a graph scheduler finds the instance's ranks in it by host.
    """
    rset = ResourceSet.from_obj(parent_r)
    if rset.nnodes != len(hosts):
        return None
    try:
        return rset.rerank(hosts)
    except RsetError:
        # In test instances, host names differ. Hosts are then matched by their order.
        return rset.rerank()


async def inherited(
    uri: str, job: str, hosts: list[str], watch: bool = True, say: Callable[[str], None] = lambda _text: None
) -> AsyncIterator[ResourceSet]:
    """The results of parent_r() with this instance's ranks; empty unless each node has one broker.

    Raises RsetError, RpcError or OSError.
    """
    async for r in parent_r(uri, job, watch, say):
        rset = for_sub_instance(r, hosts)
        if rset is None:
            return
        yield rset


async def parent_r(uri: str, job: str, watch: bool, say: Callable[[str], None]) -> AsyncIterator[dict[str, Any]]:
    """R of the enclosing job from its instance, now and after each change (such as a longer expiration).

    The iteration ends with the job. R is yielded only once if `watch` is false or the instance does not provide
    update-watch; then `say` is called with a message. Raises RpcError or OSError.
    """
    scheme, _, path = uri.partition("://")
    if scheme != "local":
        raise RpcError(errno.EPROTONOSUPPORT, f"parent-uri {uri}: R can only be read from local://")
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        greeting = await reader.readexactly(1)
        if greeting != b"\0":
            raise RpcError(greeting[0], os.strerror(greeting[0]))
        id = jobid.parse(job)
        body = {"id": id, "key": "R", "flags": 0}
        watching = m.request("job-info.update-watch", body, matchtag=1, flags=m.FLAG_STREAMING)
        looking = m.request("job-info.lookup", {"id": id, "keys": ["R"], "flags": 0}, matchtag=2)
        if not watch:
            say(_FALLING_BACK)
        writer.write(m.frame(watching if watch else looking))
        deframer = m.Deframer()
        while True:
            data = await reader.read(65536)
            if not data:
                raise RpcError(errno.ECONNRESET, "the enclosing instance closed the connection")
            deframer.feed(data)
            for reply in deframer:
                if reply.type != m.RESPONSE:
                    continue
                if reply.errnum == errno.ENODATA:
                    return
                if reply.errnum == errno.ENOSYS and reply.matchtag == 1:
                    say(_FALLING_BACK)
                    writer.write(m.frame(looking))
                    continue
                if reply.errnum:
                    raise RpcError(reply.errnum, reply.text)
                if reply.matchtag == 2:
                    yield json.loads(reply.obj["R"])
                    return
                yield reply.obj["R"]
    finally:
        writer.close()
