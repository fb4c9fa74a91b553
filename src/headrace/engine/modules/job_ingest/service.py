"""Job submission: check a jobspec, add defaults, assign an id, pass the job to the job manager.

Jobs that arrive in one loop turn are passed on in one message. The service stores nothing: its id generator starts
above the highest id that the job manager has ever seen, so ids never repeat, even if the clock is set back.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import logging
import os
import pwd
import random
from typing import Any

import msgspec

from headrace.engine.broker.module.args import only
from headrace.engine.broker.module.context import ModuleContext, RpcError
from headrace.engine.jobs.pack import split_j
from headrace.engine.jobs.policy import Policy, PolicyConfigError, PolicyError, UnknownQueue
from headrace.engine.jobs.record import updated_jobspec
from headrace.engine.jobs.storable import MOST_LEVELS, TOO_DEEP, is_deep
from headrace.engine.modules.job_ingest.checks import NO_CHECKS, Checks, check_signature, checks, refuse_direct
from headrace.engine.modules.job_ingest.decode import NOTHING, decode, fresh
from headrace.engine.modules.job_ingest.validators import Validators
from headrace.formats.config import guests
from headrace.formats.spec import jobspec as js
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.job_state import FLAG_DEBUG, FLAG_NOVALIDATE, FLAG_PRE_SIGNED, FLAG_WAITABLE
from headrace.formats.spec.jobid import MAX_GENERATOR, FluidGenerator
from headrace.formats.spec.message import ROLE_OWNER, Message
from headrace.formats.spec.requests.jobs import JOB_INGEST
from headrace.formats.spec.urgency import URGENCY_DEFAULT, URGENCY_EXPEDITE, URGENCY_HOLD
from headrace.wire.query.signing import MECHANISMS, MUNGE, NONE, VARIABLE

NAME = "job-ingest"

_FLAGS = FLAG_PRE_SIGNED | FLAG_DEBUG | FLAG_WAITABLE | FLAG_NOVALIDATE
_HEADS = 64
# The `attributes.system` that is added to jobspecs without it.
_NO_SYSTEM: dict[str, Any] = {}
# The signature of mechanism none.
_NONE = b"none"
_pack = msgspec.msgpack.Encoder().encode
# Arguments for flux-core's validators, which are processes. They have no effect here.
_WITHOUT_EFFECT = (
    "batch-count",
    "buffer-size",
    "validator",
)
_KNOWN = ("disable-validator", "validator-args", "validator-plugins")


def check(ctx: ModuleContext, args: list[str]) -> None:
    """Raise RpcError(EINVAL) for invalid module arguments."""
    only(ctx, args, _KNOWN, _WITHOUT_EFFECT)
    checks(ctx.config, args)


def load(ctx: ModuleContext, args: list[str]) -> None:
    _Ingest(ctx, args)


class _Ingest:
    def __init__(self, ctx: ModuleContext, args: list[str]) -> None:
        self.ctx = ctx
        self.args = args
        self.checks = checks(ctx.config, args)
        self.policy = _policy(ctx.config)
        self.version = _version(ctx.config)
        self.generator: FluidGenerator | None = None
        self.epoch_ms = 0
        self.early: list[Message] = []
        self.batch: list[dict[str, Any]] = []
        self.requests: list[Message] = []
        # Signer, mechanism and header by header. All waiting jobs with equal headers share one object.
        self.heads: dict[bytes, tuple[int, str, bytes]] = {}
        # The last valid jobspec, and its text. The text is empty if the same jobspec must be checked again.
        self.last = NOTHING
        self.text = b""
        self.count = 0
        # Guests whose passwd entry has been found.
        self.users: set[int] = set()
        methods = {"submit": self._submit, "getinfo": self._getinfo}
        ctx.service(NAME, methods, open=methods, requests=JOB_INGEST)
        self.validators = Validators(ctx)
        ctx.on_unload(self.validators.close)
        ctx.on_config(self._configure)
        ctx.on_stats(lambda: {"pipeline": {"submitted": self.count}})
        ctx.call("job-manager.getinfo", {}, self._begin)

    def _configure(self, config: dict[str, Any]) -> None:
        self.policy, self.version, self.checks = _policy(config), _version(config), checks(config, self.args)
        self.text = b""

    def _begin(self, reply: Message) -> None:
        if reply.errnum:
            text = reply.text or os.strerror(reply.errnum)
            self.ctx.log(logging.ERROR, f"job-manager.getinfo: {text}: no job can be submitted")
            return
        highest = reply.obj["max_jobid"]
        now_ms = int(self.ctx.now() * 1000)
        # The instance's epoch is chosen so that ids continue after the ids of the last run.
        self.epoch_ms = now_ms - ((highest >> 24) + 1 if highest else 0)
        # MPI libraries use the job id in names of shared objects on a node (MPICH for its /dev/shm segments), and all
        # instances begin with low ids. A random generator number distinguishes the jobs of different instances.
        self.generator = FluidGenerator(random.randrange(MAX_GENERATOR + 1), self.epoch_ms, highest or -1)
        early, self.early = self.early, []
        for msg in early:
            try:
                pending = self._submit(msg)
            except RpcError as exc:
                self.ctx.respond_error(msg, exc.errnum, exc.text)
            else:
                if pending is not None:
                    self.ctx.spawn(self._late(msg, pending), (msg,))

    async def _late(self, msg: Message, pending: Any) -> None:
        try:
            await pending
        except RpcError as exc:
            self.ctx.respond_error(msg, exc.errnum, exc.text)

    def _getinfo(self, msg: Message) -> dict[str, Any]:
        return {"timestamp": int(self.ctx.now() * 1000) - self.epoch_ms}

    # -- one submission

    def _submit(self, msg: Message) -> Any:
        """`submit {J | jobspec, urgency, flags}`: {id}."""
        if self.generator is None:
            self.early.append(msg)
            return None
        body = msg.obj
        urgency, flags = body.get("urgency"), body.get("flags") or 0
        if urgency is None:
            urgency = URGENCY_DEFAULT
        owner = bool(msg.rolemask & ROLE_OWNER)
        if not URGENCY_HOLD <= urgency <= URGENCY_EXPEDITE:
            raise RpcError(errno.EINVAL, "urgency range is [0:31]")
        if not owner and urgency > URGENCY_DEFAULT:
            raise RpcError(errno.EINVAL, f"only the instance owner can submit with urgency >{URGENCY_DEFAULT}")
        if flags & ~_FLAGS:
            raise RpcError(errno.EPROTO, f"unknown submit flags {flags!r}")
        if flags & FLAG_NOVALIDATE and not owner:
            raise RpcError(errno.EPERM, "only the instance owner can submit with the novalidate flag")
        if flags & FLAG_WAITABLE and not owner:
            raise RpcError(errno.EINVAL, "only the instance owner can submit with the waitable flag")
        # Any client can write a signature of mechanism none, so it proves nothing. The user id of a guest's request
        # comes from the kernel, or from the owner, who may set another user id (RFC 12).
        if not owner:
            self._check_guest(msg.userid)
        head, text, tail = self._open(body, msg.userid)
        if not owner and tail == _NONE and guests.mechanism(self.ctx.config) == guests.MUNGE:
            why = f'{guests.MECHANISM_KEY} is "{guests.MUNGE}": set {VARIABLE}={MUNGE}'
            raise RpcError(errno.EPERM, f"jobs of guests must be signed with {MUNGE}, as {why}")
        jobspec = self._jobspec(text, bool(flags & FLAG_NOVALIDATE))
        jobspec, updates = self._completed(jobspec)
        job = {
            "userid": msg.userid,
            "urgency": urgency,
            "flags": flags,
            "jobspec": jobspec,
            "submission": (head, text, tail, updates or None),
        }
        constraint = js.constraints(jobspec)
        hosts = _hosts(constraint) if constraint else []
        checks = NO_CHECKS if flags & FLAG_NOVALIDATE else self.checks
        if checks.least is not None:
            refuse_direct(jobspec, checks.least)
        user_unchecked = not owner and msg.userid not in self.users and guests.submit(self.ctx.config) == guests.AS_USER
        if hosts or checks.feasible or checks.files or user_unchecked or tail != _NONE:
            return self._check(msg, job, hosts, checks, user_unchecked)
        self._hand_over(msg, job)
        return None

    def _open(self, body: dict[str, Any], userid: int) -> tuple[bytes, bytes, bytes]:
        """J split into header, payload and signature (RFC 15); a plain jobspec gets header and signature.

        A signature of mechanism `munge` is not verified here.
        """
        if body.get("J") is None:
            jobspec = body.get("jobspec")
            if jobspec is None:
                raise RpcError(errno.EPROTO, f"{NAME}.submit: J: missing, expected str")
            if is_deep(jobspec):
                raise RpcError(errno.EINVAL, f"jobspec {TOO_DEEP}")
            plain = jobspec.encode("utf-8") if isinstance(jobspec, str) else msgspec.json.encode(jobspec)
            return _plain_head(userid), plain, _NONE
        try:
            head, text, tail = split_j(body["J"])
        except ValueError as exc:
            raise RpcError(errno.EINVAL, str(exc)) from None
        known = self.heads.get(head)
        if known is None:
            known = (*_signer(head), head)
            if len(self.heads) < _HEADS:
                self.heads[head] = known
        signer, mechanism, head = known
        if signer != userid:
            raise RpcError(errno.EPERM, f"signer={signer} != requestor={userid}")
        if (tail == _NONE) != (mechanism == NONE):
            raise RpcError(errno.EINVAL, f"J: the signature is not one of mechanism {mechanism}")
        return head, text, _NONE if tail == _NONE else tail

    def _jobspec(self, text: bytes, novalidate: bool) -> dict[str, Any]:
        if text == self.text and text:
            return self.last.value
        last = self.last
        try:
            decoded = decode(text, last)
            jobspec = decoded.value
            js.validate(jobspec, None if novalidate else self.version, last.value)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise _not_a_jobspec(text) from None
        except js.JobspecError as exc:
            raise RpcError(errno.EPERM, str(exc)) from None
        _check_storable(list(fresh(decoded, last)))
        attributes = jobspec["attributes"]
        if not attributes or attributes.get("system") is None:
            # In RFC 14, `system` is optional, but the other services of the instance require it.
            jobspec["attributes"] = {**(attributes or {}), "system": _NO_SYSTEM}
        self.last = decoded
        self.text = b"" if novalidate else text
        return jobspec

    def _completed(self, jobspec: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The jobspec with the defaults of its queue, and the defaults as updates.

        Raises RpcError for a jobspec that the policy refuses.
        """
        try:
            updates = self.policy.updates(jobspec)
            if jobspec["attributes"]["system"] is _NO_SYSTEM:
                # The text is stored as it was signed. Additions are stored separately, as updates.
                updates = {"attributes.system": _NO_SYSTEM, **updates}
            if updates:
                jobspec = updated_jobspec(jobspec, updates)
            self.policy.check(jobspec)
        except UnknownQueue as exc:
            raise RpcError(errno.EPERM, str(exc)) from None
        except PolicyError as exc:
            raise RpcError(errno.EINVAL, str(exc)) from None
        return jobspec, updates

    def _check_guest(self, userid: int) -> None:
        """Raise RpcError if guests, or this guest, must not submit jobs."""
        if guests.submit(self.ctx.config) == guests.REFUSE:
            why = f'{guests.KEY} is "{guests.REFUSE}"'
            raise RpcError(errno.EPERM, f"only the instance owner can submit jobs signed with mechanism none: {why}")
        why = guests.below_least(self.ctx.config, userid)
        if why:
            raise RpcError(errno.EPERM, why)

    async def _look_up(self, userid: int) -> None:
        """Refuse a guest without a passwd entry, as whom jobs could not run.

        The name service may take long to respond, so it is called in a thread.
        """
        try:
            await asyncio.to_thread(pwd.getpwuid, userid)
        except KeyError:
            text = f"jobs run as their users here, and user {userid} has no entry in passwd"
            raise RpcError(errno.EPERM, text) from None
        self.users.add(userid)

    async def _check(
        self, msg: Message, job: dict[str, Any], hosts: list[str], checks: Checks, user_unchecked: bool
    ) -> None:
        if user_unchecked:
            await self._look_up(msg.userid)
        if job["submission"][2] != _NONE:
            await check_signature(msg.obj["J"], msg.userid, self.ctx.now())
        if hosts:
            await self._check_hosts(hosts)
        if checks.files:
            await self.validators.check(checks.files, checks.options, job)
        if checks.feasible:
            try:
                await self.ctx.rpc("feasibility.check", {"jobspec": job["jobspec"]})
            except RpcError as exc:
                # Without a scheduler, or before it has resources, the check is left to the alloc request.
                if exc.errnum not in (errno.ENOSYS, errno.EAGAIN):
                    raise
        self._hand_over(msg, job)

    async def _check_hosts(self, hosts: list[str]) -> None:
        """Refuse a constraint with a host that is not in the instance, which must be a mistake."""
        try:
            status = await self.ctx.rpc("resource.status", {})
            known = Hostlist.parse(",".join(status["R"]["execution"].get("nodelist", [])))
        except RpcError:
            known = None
        if known is not None:
            names = set(known)
            for text in hosts:
                for host in Hostlist.parse(text):
                    if host not in names:
                        raise RpcError(errno.EPERM, f"host constraint contains invalid hosts: host '{host}' not found")

    # -- to the job manager

    def _hand_over(self, msg: Message, job: dict[str, Any]) -> None:
        if not self.batch:
            self.ctx.at_flush(self._send)
        self.batch.append(job)
        self.requests.append(msg)

    def _send(self) -> None:
        batch, requests = self.batch, self.requests
        self.batch, self.requests = [], []
        if not batch:
            return
        assert self.generator is not None
        ids = self.generator.take(len(batch), int(self.ctx.now() * 1000))
        for job, id in zip(batch, ids):
            job["id"] = id
        self.count += len(batch)
        self.ctx.call("job-manager.submit", {"jobs": batch}, lambda reply: self._answer(reply, requests, ids))

    def _answer(self, reply: Message, requests: list[Message], ids: list[int]) -> None:
        respond, respond_error = self.ctx.respond, self.ctx.respond_error
        if reply.errnum:
            for msg in requests:
                respond_error(msg, reply.errnum, reply.text)
            return
        errors = {id: (text, errnum) for id, text, errnum in reply.obj["errors"]}
        for msg, id in zip(requests, ids):
            if id in errors:
                text, errnum = errors[id]
                respond_error(msg, errnum, text)
            else:
                respond(msg, {"id": id})


def _check_storable(parts: list[Any]) -> None:
    """Raise RpcError if the journal could not restore the new parts of a jobspec."""
    try:
        # Each level of nesting takes at least a byte, so most new parts are too short to be too deep. A part is at most
        # at the fourth level of the jobspec, but at the second level here, hence the 2.
        deep = len(_pack(parts)) > MOST_LEVELS and is_deep(parts, MOST_LEVELS - 2)
    except OverflowError:
        raise RpcError(errno.EINVAL, "jobspec has a whole number of more than 64 bits") from None
    except RecursionError:
        deep = True
    if deep:
        raise RpcError(errno.EINVAL, f"jobspec {TOO_DEEP}")


def _hosts(constraint: dict[str, Any]) -> list[str]:
    """The hostlists in a constraint (RFC 31) whose hosts must exist. Below `not`, any host is allowed."""
    out: list[str] = []
    for operator, values in constraint.items():
        if operator == "hostlist":
            out.extend(values)
        elif operator in ("and", "or"):
            for inner in values:
                out.extend(_hosts(inner))
    return out


def _signer(head: bytes) -> tuple[int, str]:
    """The user id and mechanism in a header. Raises RpcError.

    A header (RFC 15) is the base64 encoding of NUL-terminated keys and values, each value after its type.
    """
    try:
        parts = base64.b64decode(head, validate=True).split(b"\0")
        fields = dict(zip(parts[0::2], parts[1::2]))
        mechanism = fields[b"mechanism"][1:].decode("ascii", "replace")
        userid = int(fields[b"userid"][1:])
    except (ValueError, KeyError, IndexError) as exc:
        raise RpcError(errno.EINVAL, f"J: bad header: {exc}") from None
    if mechanism not in MECHANISMS:
        raise RpcError(errno.EINVAL, f"J: signed with mechanism {mechanism}: there are {' and '.join(MECHANISMS)}")
    return userid, mechanism


def _not_a_jobspec(text: bytes) -> RpcError:
    """The error for a jobspec that is not a JSON object."""
    try:
        js.validate(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
        return RpcError(errno.EINVAL, f"jobspec is not JSON: {exc}")
    except js.JobspecError as exc:
        return RpcError(errno.EPERM, str(exc))
    return RpcError(errno.EINVAL, "jobspec is not JSON")


def _plain_head(userid: int) -> bytes:
    return base64.b64encode(f"version\0i1\0userid\0i{userid}\0mechanism\0snone\0".encode())


def _version(config: dict[str, Any]) -> int | None:
    """The required version of jobspecs (None: any), from an argument of flux-core's validator."""
    where = "ingest.validator.args"
    try:
        args = config.get("ingest", {}).get("validator", {}).get("args", [])
    except AttributeError:
        raise RpcError(errno.EINVAL, "ingest.validator: must be a table") from None
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        raise RpcError(errno.EINVAL, f"{where}: must be a list of strings")
    found = [value for name, _, value in (arg.partition("=") for arg in args) if name == "--require-version"]
    if not found:
        return 1
    if found[-1] != "any" and not (found[-1].isdecimal() and int(found[-1])):
        raise RpcError(errno.EINVAL, f"{where}: --require-version must be any or a version, not {found[-1]!r}")
    return None if found[-1] == "any" else int(found[-1])


def _policy(config: dict[str, Any]) -> Policy:
    try:
        return Policy(config)
    except PolicyConfigError as exc:
        raise RpcError(errno.EINVAL, str(exc)) from None
