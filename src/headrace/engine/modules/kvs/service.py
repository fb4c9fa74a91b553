"""The key-value store (RFC 11) on rank 0: namespaces, commits, lookups, setroot events for followers.

Commits are handled by `Committer` and answered when they are durable. Lookups read the published version and never wait
for a write. The directory `job` and the namespaces `job-ID` are views of the job store. Values that clients commit
below them are stored here and shown in the views.
"""

from __future__ import annotations

import errno
import logging
import re
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

from headrace.engine.broker.kept import data_path
from headrace.engine.broker.module.args import only
from headrace.engine.broker.module.context import EMPTY, Empty, ModuleContext, RpcError
from headrace.engine.broker.state.disk import emptied, unusable
from headrace.engine.modules.kvs.commit import PRIMARY, Change, Committer, Estate, Namespace
from headrace.engine.modules.kvs.job_data import committed, log_appends
from headrace.engine.modules.kvs.log import Log, LogError
from headrace.engine.modules.kvs.tree import Dir, DirRef, KvsError, Refs, dir_of_ref, from_treeobj, to_treeobj
from headrace.engine.modules.kvs.txn import Op, decode_ops, largest_blob
from headrace.engine.modules.kvs.views import Fetcher, Walk, failure
from headrace.engine.modules.kvs.walk import Mount, Top, View, answer, find, split_key
from headrace.formats.spec import message as m
from headrace.formats.spec.job_exception import EXEC, FATAL
from headrace.formats.spec.kvs_flags import NO_MERGE, READLINK, SYNC, TREEOBJ
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.kvs import KVS

NAME = "kvs"

_FOR_GUESTS = ("lookup", "lookup-plus", "getroot", "commit", "fence", "wait-version")
_LOST = "What is in the key-value store is lost then, jobs are not."
_SIGNED_JOBSPEC = re.compile(r"job\.((?:[0-9a-f]{4}\.){3}[0-9a-f]{4})\.J\Z")
_JOB_SPACE = re.compile(r"job-([0-9]{1,20})\Z")
# Module arguments: the initial root, and whether commits may be merged into one version (1, the default, or 0).
_ROOTREF, _MERGE = "initial-rootref", "transaction-merge"


class Fence:
    """Transactions with the same name, committed together when `total` of them have arrived."""

    __slots__ = ("messages", "ops", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.messages: list[Message] = []
        self.ops: list[Op] = []


def job_path(jobid: int) -> str:
    """The path of a job in the job store (RFC 16): four groups of four hex digits."""
    text = f"{jobid:016x}"
    return f"{text[:4]}.{text[4:8]}.{text[8:12]}.{text[12:]}"


class Kvs:
    """The service's state."""

    def __init__(self, ctx: ModuleContext, log: Log | None, merge: bool) -> None:
        self.ctx = ctx
        kept = ctx.kept
        handed_over = kept.pop(ctx.name, None) if kept else None
        estate = handed_over if isinstance(handed_over, Estate) else None
        self.refs = Refs(_hash(ctx)) if estate is None else estate.refs
        self.fetcher = Fetcher(ctx, self.refs, durable=log is not None)
        self.store = Committer(ctx, self.refs, self.fetcher, log, estate)
        self.spaces = self.store.spaces
        self.merge = merge
        self.fences: dict[tuple[str, str], Fence] = {}
        # Kept in memory, because clients may create a namespace with the reference of the empty directory without
        # storing its blob.
        self._empty = Dir({})
        self._empty.reference(self.refs)
        # In bytes; None until the content service has reported it.
        self.blob_limit: int | None = None
        ctx.subscribe("content.limits", lambda msg: self._limit(msg.obj))
        # A job-info service that was loaded before the KVS gets the keys by this event. If loaded later, it requests
        # them.
        present = self.job_data(None)
        if present["keys"]:
            ctx.publish("kvs.job-data", present, private=True)
        ctx.call("content.limits", {}, lambda reply: None if reply.errnum else self._limit(reply.obj))

    def _limit(self, limits: Any) -> None:
        """Set the content service's blob size limit. Larger values are refused before they are committed."""
        self.blob_limit = limits["blob-size-limit"]

    # Reading

    def space(self, name: str, msg: Message) -> Namespace:
        """The namespace, if the sender may use it. Raises RpcError(ENOTSUP, EPERM)."""
        space = self.spaces.get(name)
        if space is None:
            raise RpcError(errno.ENOTSUP)
        if not msg.rolemask & m.ROLE_OWNER and (msg.userid != space.owner or msg.userid == m.USERID_UNKNOWN):
            raise RpcError(errno.EPERM)
        return space

    def walk(self, msg: Message) -> Walk:
        """The environment for walks on behalf of the sender of `msg`."""

        def root_of(name: str, walk: Walk) -> View:
            job = self._job_of(name)
            try:
                if job is None:
                    space = self.space(name, msg)
                    return Top(self.store.primary_root) if name == PRIMARY else space.root
                self.space(PRIMARY, msg)
            except RpcError as exc:
                raise KvsError(exc.errnum, exc.text) from None
            if walk.outside(job) is None:
                raise KvsError(errno.ENOTSUP)
            guest = find(Top(self.store.primary_root), f"job.{job}.guest", walk)
            return guest if isinstance(guest, (Mount, Dir)) else Mount(f"{job}.guest", None)

        return Walk(self.refs, root_of)

    def _job_of(self, name: str) -> str | None:
        """The job's path in the job store if `name` is the namespace of a job, else None."""
        match = None if name in self.spaces else _JOB_SPACE.match(name)
        if match is None or int(match[1]) >= 1 << 64:
            return None
        return job_path(int(match[1]))

    def _seen(self, name: str) -> Namespace:
        """The namespace `name`, or the primary namespace for the namespace of a job."""
        return self.spaces.get(name) or self.spaces[PRIMARY]

    def root_at(self, treeobj: Any) -> View:
        """The root for the `rootdir` of a request. Raises KvsError(EINVAL)."""
        node = from_treeobj(treeobj, self.refs)
        if not isinstance(node, (Dir, DirRef)):
            raise KvsError(errno.EINVAL, "rootdir must be a dirref")
        return Top(node) if isinstance(node, Dir) and node in self.store.primary_roots else node

    def lookup(self, msg: Message) -> Any:
        """kvs.lookup {key, namespace, flags, rootdir?} -> {val}."""
        return self._lookup(msg, plus=False)

    def lookup_plus(self, msg: Message) -> Any:
        """kvs.lookup-plus: like lookup, with the root's reference and version.

        For a missing key, the response is {errno, ...} instead of an error. `outside` is true if the walk read the job
        store, whose changes are not announced by setroot events.
        """
        return self._lookup(msg, plus=True)

    def _lookup(self, msg: Message, plus: bool) -> Any:
        body = msg.obj
        key, flags = body["key"], body["flags"]
        name = body.get("namespace") or PRIMARY
        rootdir = body.get("rootdir")
        walk = self.walk(msg)
        fixed = None
        if rootdir is not None:
            # Knowing a reference does not grant access, so the permission is checked by namespace.
            self.space(name if name in self.spaces else PRIMARY, msg)
            fixed = self.root_at(rootdir)
            if isinstance(fixed, Top):
                # Users must not read the primary namespace by naming their own namespace and the primary root.
                self.space(PRIMARY, msg)

        def attempt() -> dict[str, Any]:
            root = walk.root_of(name) if fixed is None else fixed
            node = find(root, key, walk, not flags & (READLINK | TREEOBJ))
            result: dict[str, Any] = {}
            if plus:
                space = self._seen(name)
                result = {"rootref": space.root.reference(self.refs), "rootseq": space.seq, "owner": space.owner}
                if walk.fetched:
                    result["outside"] = True
            if node is None:
                if not plus:
                    raise KvsError(errno.ENOENT)
                result["errno"] = errno.ENOENT
            else:
                result["val"] = answer(node, flags, walk)
            return result

        return _as_rpc(self.fetcher.run(walk, attempt))

    def getroot(self, msg: Message) -> Any:
        """kvs.getroot {namespace} -> {owner, rootref, rootseq, flags}. The root includes the view of jobs."""
        name = msg.obj["namespace"]
        walk = self.walk(msg)

        def attempt() -> dict[str, Any]:
            node = walk.root_of(name)
            if isinstance(node, (Mount, Top)):
                node = walk.frozen(node)
            if isinstance(node, Dir):
                self.store.history.append(node)
            space = self._seen(name)
            ref = to_treeobj(node, self.refs)["data"][0]
            return {"owner": space.owner, "rootref": ref, "rootseq": space.seq, "flags": space.flags}

        return _as_rpc(self.fetcher.run(walk, attempt))

    def blob(self, msg: Message) -> None:
        """kvs.blob {ref}: the blob of a node in memory, for the content service. Raises RpcError(ENOENT)."""
        blob = self.refs.blob(msg.obj["ref"])
        if blob is None:
            raise RpcError(errno.ENOENT)
        self.ctx.respond(msg, payload=blob or None)

    def wait_version(self, msg: Message) -> dict[str, Any] | None:
        """kvs.wait-version {namespace, rootseq}: responds when the namespace has reached this version."""
        body = msg.obj
        space = self.space(body["namespace"], msg)
        if space.seq >= body["rootseq"]:
            return {"rootseq": space.seq, "rootref": space.root.reference(self.refs)}
        space.waiters.append((body["rootseq"], msg))
        return None

    def job_data(self, _msg: Message | None) -> dict[str, Any]:
        """kvs.job-data -> {keys: {KEY: true}}: the job keys whose committed values override the job store's.

        The event of the same name has the keys that changed. The value false means that the key was unlinked.
        """
        return {"keys": committed(self.store.primary_root)}

    # Writing

    def commit(self, msg: Message) -> None:
        """kvs.commit {namespace, flags, ops} -> {rootref, rootseq} when it is durable.

        With flag SYNC, the tree is also stored in the content store, with a checkpoint.
        """
        body = msg.obj
        space, ops = self._decode(body, msg)
        if body["flags"] & SYNC and space.name != PRIMARY:
            raise RpcError(errno.EINVAL, "only the primary namespace has checkpoints")
        self._queue(self._change(space, [msg], ops, body["flags"]))

    def _change(self, space: Namespace, messages: list[Message], ops: list[Op], flags: int) -> Change:
        change = Change(space.name, messages, ops, self.merge and not flags & NO_MERGE)
        change.sync = bool(flags & SYNC)
        return change

    def fence(self, msg: Message) -> None:
        """kvs.fence {name, nprocs, namespace, flags, ops}: commit `nprocs` transactions together."""
        body = msg.obj
        space, ops = self._decode(body, msg)
        if body["flags"] & SYNC and space.name != PRIMARY:
            raise RpcError(errno.EINVAL, "only the primary namespace has checkpoints")
        if body["nprocs"] < 1:
            raise RpcError(errno.EINVAL, f"fence {body['name']}: nprocs must be 1 or more")
        # The key has the requested namespace, not `space`: a job's namespace is part of the primary namespace, and
        # the same fence name may be used in both.
        key = (body["namespace"], body["name"])
        fence = self.fences.setdefault(key, Fence(body["nprocs"]))
        if body["nprocs"] != fence.total:
            raise RpcError(errno.EINVAL, f"fence {body['name']} was begun with nprocs {fence.total}")
        fence.messages.append(msg)
        fence.ops.extend(ops)
        if len(fence.messages) == fence.total:
            del self.fences[key]
            change = self._change(space, fence.messages, fence.ops, body["flags"])
            change.names.append(body["name"])
            self._queue(change)

    def _queue(self, change: Change) -> None:
        """Queue a client's transaction, after passing appends to logs of jobs to the job store."""
        appends = log_appends(self.store.primary_root, change.ops) if change.space == PRIMARY else []
        if not appends:
            self.store.queue(change)
            return

        def appended(reply: Message) -> None:
            if reply.errnum and reply.errnum != errno.ENOSYS:
                for msg in change.messages:
                    self.ctx.respond_error(msg, reply.errnum, reply.text)
                return
            if not reply.errnum:
                not_logs = set(reply.obj["unknown"])
                done = [append for append in appends if append.path not in not_logs]
                for append in done:
                    self.fetcher.forget(append.job)
                stored = {append.number for append in done}
                change.ops = [op for number, op in enumerate(change.ops) if number not in stored]
            self.store.queue(change)

        logs = [[append.path, append.text] for append in appends]
        self.ctx.call("job-store.append-text", {"logs": logs}, appended)

    def _decode(self, body: dict[str, Any], msg: Message) -> tuple[Namespace, list[Op]]:
        try:
            ops = decode_ops(body.get("ops"), self.refs, not msg.rolemask & m.ROLE_OWNER)
        except KvsError as exc:
            raise failure(exc) from None
        if self.blob_limit is not None:
            size, key = largest_blob(ops)
            if size > self.blob_limit:
                raise RpcError(errno.EFBIG, f"{key}: a value has at most {self.blob_limit} bytes, this has {size}")
        name = body["namespace"]
        job = self._job_of(name)
        space = self.space(PRIMARY if job is not None else name, msg)
        if job is not None:
            ops = [op._replace(key=f"job.{job}.guest.{op.key}") for op in ops]
        elif name == PRIMARY:
            self._refuse_unlinking_jobs(space, ops)
            for op in ops:
                self._guard_jobspec(op)
        return space, ops

    def _guard_jobspec(self, op: Op) -> None:
        """Raise an exception on a pending job if `op` overwrites its signed jobspec (`J`, RFC 16).

        The job would run the submitted jobspec from the job store, but programs that read `J` in the KVS would see
        another jobspec. Flux raises the exception when the job starts. A job that has started has already read its `J`
        and is not affected.
        """
        if not op.key.endswith("J") or not op.key.startswith("job"):
            return
        match = _SIGNED_JOBSPEC.match(".".join(split_key(op.key)))
        if match is None:
            return
        path = match[1]

        def looked_up(reply: Message) -> None:
            log = "" if reply.errnum else (reply.obj or {}).get("val", "")
            if log and '"name":"start"' not in log:
                note = f"the signed jobspec {op.key} was changed in the KVS after the job was submitted"
                job = {"id": int(path.replace(".", ""), 16), "type": EXEC, "severity": FATAL, "note": note}
                # An error is ignored: the job may have ended in the meantime.
                self.ctx.call("job-manager.raise", job, lambda _reply: None)

        self.ctx.call("job-store.lookup", {"path": f"{path}.eventlog"}, looked_up)

    def _refuse_unlinking_jobs(self, space: Namespace, ops: list[Op]) -> None:
        """Raise RpcError(EPERM) for unlinking keys that only the job store has.

        Unlinking them would silently have no effect.
        """
        for op in ops:
            if op.node is not None or not op.key.startswith("job"):
                continue
            path = split_key(op.key)
            node: Any = space.root
            for name in path if path[0] == "job" else ():
                node = node.entries.get(name) if isinstance(node, Dir) else None
                if node is None:
                    raise RpcError(errno.EPERM, f"{op.key}: jobs are removed by 'flux job purge'")

    # Namespaces

    def namespace_create(self, msg: Message) -> None:
        """kvs.namespace-create {namespace, owner, flags, rootref?}. Raises RpcError(EEXIST, EINVAL)."""
        body = msg.obj
        name = body["namespace"]
        # The name is part of event topics, and a topic must not contain a NUL (RFC 3).
        if not name or any(c.isspace() or c in "./\0" for c in name):
            raise RpcError(errno.EINVAL, f"{name!r} is not a namespace name")
        owner = body["owner"] & 0xFFFFFFFF
        root: Dir | DirRef = Dir({})
        if body.get("rootref"):
            if not self.refs.valid(body["rootref"]):
                raise RpcError(errno.EINVAL, f"rootref is not a {self.refs.hash_name} blobref")
            root = dir_of_ref(body["rootref"], self.refs)
        if owner == m.USERID_UNKNOWN:
            owner = self.ctx.owner
        if isinstance(root, Dir):
            self._create(msg, name, owner, body["flags"], root)
        else:
            self.ctx.spawn(self._create_later(msg, name, owner, body["flags"], root), (msg,))

    async def _create_later(self, msg: Message, name: str, owner: int, flags: int, root: DirRef) -> None:
        try:
            await self.fetcher.fill(root)
        except KvsError:
            # The namespace is created anyway. Lookups report that its root is not in the content store.
            root.loaded = None
        self._create(msg, name, owner, flags, root if root.loaded is None else root.loaded)

    def _create(self, msg: Message, name: str, owner: int, flags: int, root: Dir | DirRef) -> None:
        change = Change(name, [msg], [])
        change.create = Namespace(name, owner, flags, root)
        self.store.queue(change)

    def namespace_remove(self, msg: Message) -> None:
        """kvs.namespace-remove {namespace}. An unknown namespace is not an error.

        Raises RpcError(ENOTSUP) for the primary namespace.
        """
        name = msg.obj["namespace"]
        if name == PRIMARY:
            raise RpcError(errno.ENOTSUP, "the primary namespace cannot be removed")
        change = Change(name, [msg], [])
        change.remove = True
        self.store.queue(change)

    def namespace_list(self, _msg: Message) -> dict[str, Any]:
        """kvs.namespace-list -> {namespaces: [{namespace, owner, flags}]}."""
        return {
            "namespaces": [
                {"namespace": space.name, "owner": space.owner, "flags": space.flags} for space in self.spaces.values()
            ]
        }

    # Housekeeping

    def purged(self, event: Message) -> None:
        """Remove values that were committed below the directories of purged jobs."""
        ops = []
        for jobid in (event.obj or {}).get("jobs", ()):
            path = job_path(jobid)
            self.fetcher.forget(path)
            node: Any = self.spaces[PRIMARY].root
            for name in ["job", *path.split(".")]:
                node = node.entries.get(name) if isinstance(node, Dir) else None
            if node is not None:
                ops.append(Op(f"job.{path}", 0, None))
        if ops:
            self.store.queue(Change(PRIMARY, [], ops))

    def disconnected(self, sender: str) -> None:
        """Remove a client's waiting requests. Its part of a fence remains, as in Flux."""
        for space in self.spaces.values():
            space.waiters = [entry for entry in space.waiters if entry[1].sender != sender]

    async def close(self) -> None:
        """Finish the queued changes, then refuse waiting requests, including those of incomplete fences."""
        await self.store.close()
        for fence in self.fences.values():
            for msg in fence.messages:
                self.ctx.respond_error(msg, errno.ENOSYS, f"{self.ctx.name} was unloaded")
        self.fences.clear()

    def stats(self) -> dict[str, Any]:
        waiting = sum(len(space.waiters) for space in self.spaces.values())
        store = self.store
        return {
            "cache": {"#obj": len(self.refs.live), "#obj dirty": 0, "#obj incomplete": 0, "#faults": 0},
            "namespace": {
                space.name: {
                    "#versionwaiters": len(space.waiters),
                    "#transactions": sum(change.space == space.name for change in store.pending),
                    "store revision": space.seq,
                }
                for space in self.spaces.values()
            },
            "transaction-opcount": {"commit": store.commit_ops.stats(), "fence": store.fence_ops.stats()},
            "pending_requests": waiting + sum(len(change.messages) for change in store.pending),
        }


def _as_rpc(result: Any) -> Any:
    """Turn a coroutine's KvsError into an RpcError."""
    if isinstance(result, dict):
        return result

    async def converted() -> Any:
        try:
            return await result
        except KvsError as exc:
            raise failure(exc) from None

    return converted()


def _converting(handler: Callable[[Message], Any]) -> Callable[[Message], Any]:
    def handle(msg: Message) -> Any:
        try:
            return handler(msg)
        except KvsError as exc:
            raise failure(exc) from None

    return handle


async def _begin_at(ctx: ModuleContext, kvs: Kvs, rootref: str, flags: int = 0) -> None:
    """Replace all keys by the keys below `rootref`, except `job`: job data are in the job store.

    Raises RpcError if the root is not in the content store.
    """
    try:
        root = await kvs.fetcher.directory(rootref)
        # The blobs of an earlier version may exist only in memory, and only for a limited time.
        await kvs.fetcher.keep(root)
    except KvsError as exc:
        raise failure(exc) from None
    entries: dict[str, Any] = dict.fromkeys(kvs.store.primary_root.entries)
    entries.update((key, to_treeobj(node, kvs.refs)) for key, node in root.entries.items())
    ops = [{"key": key, "flags": 0, "dirent": obj} for key, obj in entries.items() if key != "job"]
    await ctx.rpc("kvs.commit", {"namespace": PRIMARY, "flags": flags, "ops": ops})


async def _begin_with_checkpoint(ctx: ModuleContext, kvs: Kvs) -> None:
    """Start from the checkpoint that `flux restore --checkpoint` made, if there is one.

    The checkpoint is used only once, because the commit makes a newer checkpoint. Raises RpcError like `_begin_at`.
    """
    try:
        newest = (await ctx.rpc("content-backing.checkpoint-get", {}))["value"][0]
    except RpcError:
        # There is no backing store, or no checkpoint in it.
        return
    if newest.get("restored"):
        await _begin_at(ctx, kvs, newest["rootref"], SYNC)


def _hash(ctx: ModuleContext) -> str:
    return ctx.attrs.get("content.hash", "sha1")


def check(ctx: ModuleContext, args: list[str]) -> None:
    """Raise RpcError(EINVAL) for invalid module arguments."""
    only(ctx, args, known=(_ROOTREF, _MERGE))
    given = dict(arg.partition("=")[::2] for arg in args)
    if given.get(_MERGE, "1") not in ("0", "1"):
        raise RpcError(errno.EINVAL, f"kvs: {_MERGE}: {given[_MERGE]!r} is not 0 or 1")
    if _ROOTREF in given and not Refs(_hash(ctx)).valid(given[_ROOTREF]):
        raise RpcError(errno.EINVAL, f"kvs: {_ROOTREF}: {given[_ROOTREF]!r} is not a {_hash(ctx)} blobref")


def load(ctx: ModuleContext, args: list[str]) -> Awaitable[None]:
    """Provide `kvs`, with a log if there is a statedir or the module has its own process.

    The result is done when the keys of the checkpoint or of `initial-rootref` are loaded.
    """
    given = dict(arg.partition("=")[::2] for arg in args)
    path = data_path(ctx.attrs, NAME, apart=ctx.kept is None)
    if lost := emptied(path, _LOST):
        ctx.log(logging.ERROR, lost)
    try:
        log = Log(path) if path else None
        kvs = Kvs(ctx, log, merge=given.get(_MERGE) != "0")
    except (sqlite3.Error, LogError) as exc:
        raise RpcError(errno.EIO, unusable(path, exc, _LOST)) from None

    def nothing(_msg: Message) -> Empty:
        return EMPTY

    methods: dict[str, Callable[[Message], Any]] = {
        "lookup": kvs.lookup,
        "lookup-plus": kvs.lookup_plus,
        "getroot": kvs.getroot,
        "commit": kvs.commit,
        "fence": kvs.fence,
        "wait-version": kvs.wait_version,
        "namespace-create": kvs.namespace_create,
        "namespace-remove": kvs.namespace_remove,
        "namespace-list": kvs.namespace_list,
        "blob": kvs.blob,
        "job-data": kvs.job_data,
        "dropcache": nothing,
    }
    for name, handler in methods.items():
        methods[name] = _converting(handler)
    ctx.service(NAME, methods, open=_FOR_GUESTS, requests=KVS)
    ctx.on_disconnect(kvs.disconnected)
    ctx.on_stats_clear(kvs.store.clear_counts)
    ctx.subscribe("job-purge-inactive", kvs.purged)
    ctx.on_stats(kvs.stats)
    ctx.on_unload(kvs.close)
    if _ROOTREF in given:
        return _begin_at(ctx, kvs, given[_ROOTREF])
    return _begin_with_checkpoint(ctx, kvs)
