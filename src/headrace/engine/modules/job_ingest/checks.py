"""Checks of submissions beyond the format of the jobspec: plugins of `[ingest.validator]`, signatures.

The plugins (flux-config-ingest(5)) report problems at submission that would otherwise cause an exception of the job.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.engine.broker.module.context import RpcError
from headrace.formats.spec import jobspec as js

# The most seconds between signature and submission; the default of flux-security.
_MOST_AGE = 14 * 24 * 3600.0
_WHERE = "ingest.validator"
_LEAST = ("minnodes", "mincores")
# The plugin `jobspec` checks the format and is always active. In earlier releases of Flux it was also named `schema`.
_PLUGINS = ("feasibility", "jobspec", "require-instance", "schema")
_OPTIONS = (
    "--feasibility-service",
    "--require-instance-mincores",
    "--require-instance-minnodes",
    "--require-version",
    "--schema",
)


class Checks(NamedTuple):
    """The configured checks.

    `feasible`: ask the scheduler whether the job could ever run. `least`: None, or the numbers of nodes and cores from
    which jobs must be instances; 0 means no limit, and if both are 0, only instances are accepted. `files`: Python
    files with a class `Validator` that checks jobs (validators.py). `options`: arguments of these classes.
    """

    feasible: bool
    least: tuple[int, int] | None
    files: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


NO_CHECKS = Checks(False, None)


def checks(config: dict[str, Any], args: Iterable[str]) -> Checks:
    """The checks from the configuration, or from module arguments, which take precedence.

    The arguments are `validator-plugins=A,B`, `validator-args` and `disable-validator`. Raises RpcError(EINVAL) that
    names the invalid key.
    """
    given = dict(arg.partition("=")[::2] for arg in args)
    try:
        table = config.get("ingest", {}).get("validator", {})
        least = dict(table.get("require-instance", {}))
        off = "disable-validator" in given or table.get("disable") is True
    except (AttributeError, TypeError, ValueError):
        raise RpcError(errno.EINVAL, f"{_WHERE}: must be a table, and so must be its require-instance") from None
    plugins = given["validator-plugins"].split(",") if "validator-plugins" in given else table.get("plugins", [])
    if not isinstance(plugins, list) or not all(isinstance(plugin, str) for plugin in plugins):
        raise RpcError(errno.EINVAL, f"{_WHERE}.plugins: must be a list of strings")
    options = given["validator-args"].split(",") if "validator-args" in given else table.get("args", [])
    if not isinstance(options, list) or not all(isinstance(option, str) for option in options):
        raise RpcError(errno.EINVAL, f"{_WHERE}.args: must be a list of strings")
    for arg in options:
        name, _, value = arg.removeprefix("--require-instance-").partition("=")
        if name in _LEAST and name != arg:
            least[name] = int(value) if value.isdecimal() else value
    for name, value in least.items():
        if name not in _LEAST or type(value) is not int or value < 0:
            raise RpcError(
                errno.EINVAL, f"{_WHERE}.require-instance.{name}: must be minnodes or mincores, and a number"
            )
    if off:
        return NO_CHECKS
    files = tuple(plugin for plugin in plugins if plugin.endswith(".py"))
    for plugin in plugins:
        if plugin in files:
            if not os.path.isabs(plugin) or not os.path.isfile(plugin):
                raise RpcError(errno.EINVAL, f"{_WHERE}.plugins: {plugin!r} is not the absolute path of a file")
        elif plugin and plugin not in _PLUGINS:
            raise RpcError(errno.EINVAL, f"{_WHERE}.plugins: {plugin!r} is not one of {', '.join(_PLUGINS)}")
    # The classes in files get all options that do not belong to the built-in plugins, and refuse unknown ones.
    passed_on = tuple(option for option in options if option.partition("=")[0] not in _OPTIONS) if files else ()
    for option in options:
        if option.startswith("-") and option.partition("=")[0] not in _OPTIONS and not files:
            raise RpcError(errno.EINVAL, f"{_WHERE}.args: {option!r} is not one of {', '.join(_OPTIONS)}")
    instances = (least.get("minnodes", 0), least.get("mincores", 0)) if "require-instance" in plugins else None
    return Checks("feasibility" in plugins, instances, files, passed_on)


def refuse_direct(jobspec: dict[str, Any], least: tuple[int, int]) -> None:
    """Refuse a job that is not an instance, unless it is smaller than `least`. Raises RpcError(EINVAL)."""
    if _is_instance(jobspec):
        return
    counts = js.counts(jobspec)
    limits = [f">= {limit} {what}" for limit, what in zip(least, ("nodes", "cores")) if limit]
    large = [limit for limit, count in zip(least, (counts.nnodes, counts.ncores)) if limit and count >= limit]
    if limits and not large:
        return
    what = f"disabled for jobs {' or '.join(limits)}" if limits else "is disabled for this instance"
    raise RpcError(
        errno.EINVAL, f"Direct job submission {what}. Please use the flux-batch(1) or flux-alloc(1) commands."
    )


def _is_instance(jobspec: dict[str, Any]) -> bool:
    command = js.command(jobspec)
    if len(command) > 1 and os.path.basename(command[0]) == "flux" and command[1] in ("start", "broker"):
        return True
    return "batch" in js.system(jobspec)


async def check_signature(j: str, userid: int, now: float) -> None:
    """Raise RpcError unless user `userid` has signed J (RFC 39, mechanism `munge`).

    The local munged may take long to respond, so it is called in a thread.
    """
    # Imported at the first signature, because most instances never get one.
    from headrace.wire.query import munge

    signed, _, signature = j.rpartition(".")
    try:
        payload, signer, time = await asyncio.to_thread(munge.decode, signature)
    except munge.MungeError as exc:
        raise RpcError(errno.EPERM, f"J: {exc.strerror}") from None
    if payload != munge.digest(signed.encode("ascii", "replace")):
        raise RpcError(errno.EPERM, "J: the signature belongs to another text")
    if signer != userid:
        raise RpcError(errno.EPERM, f"J: signed by user {signer}, not by user {userid}")
    if now - time > _MOST_AGE:
        raise RpcError(errno.EPERM, f"J: signed {(now - time) / 86400:.0f} days ago")
