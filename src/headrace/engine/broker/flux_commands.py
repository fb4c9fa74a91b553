"""Flux commands that the leader runs when the instance starts and ends, as an rc script could.

The attributes `content.restore` and `content.dump` name archives for `flux restore` and `flux dump`. Their value `auto`
means an archive in the statedir, `dump/YYYYMMDD_HHMMSS.tgz`. The link `dump/RESTORE` points to the newest archive until
that is restored. The attribute `cron.directory` names a folder of crontabs for `flux cron tab`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shlex
import sys
import time
from typing import TYPE_CHECKING

from .answers import RpcError
from .program import LoggedOutput, run_command

if TYPE_CHECKING:
    from .parts import BrokerBase

# Bytes of the largest value that is restored.
_SIZE_LIMIT = "100M"
# The module that must be loaded before jobs are restored. Modules that follow its journal, such as job-list, are
# loaded after the restore.
AFTER = "job-manager"


def to_restore(setting: str, statedir: str) -> str:
    """The archive to restore according to the attribute `content.restore`, or "" for none."""
    if setting != "auto":
        return setting
    link = f"{statedir}/dump/RESTORE"
    return link if statedir and os.path.lexists(link) else ""


def to_dump(setting: str, statedir: str, now: float) -> str:
    """The archive to write according to the attribute `content.dump`, or "" for none.

    `now` is in seconds since the epoch.
    """
    if setting != "auto":
        return setting
    return f"{statedir}/dump/{time.strftime('%Y%m%d_%H%M%S', time.localtime(now))}.tgz" if statedir else ""


async def restore(broker: BrokerBase) -> int:
    """Restore on rank 0. Returns the command's exit status, or 0 if there is nothing to restore."""
    path = to_restore(broker.attrs.get("content.restore"), broker.attrs.get("statedir"))
    if not path:
        return 0
    if not os.path.exists(path):
        print(f"content.restore: {path} not found: there is nothing to restore", file=sys.stderr, flush=True)
        return 0
    print(f"restoring content from {path}", file=sys.stderr, flush=True)
    status = await _flux(broker, "restore", "--instance", "--quiet", f"--size-limit={_SIZE_LIMIT}", path)
    if status:
        # The instance ends at once. Its dump lacks the jobs of the archive, so it must not replace the archive, which
        # the owner may be able to repair.
        broker.attrs.set("content.dump", "")
    if not status and os.path.basename(path) == "RESTORE" and os.path.islink(path):
        # The statedir has the restored state from now on, so a later start must not restore the archive again.
        os.unlink(path)
    return status


async def dump(broker: BrokerBase) -> int:
    """Dump on rank 0. Returns the command's exit status, or 0 if there is nothing to dump."""
    path = to_dump(broker.attrs.get("content.dump"), broker.attrs.get("statedir"), time.time())
    if not path:
        return 0
    print(f"dumping content to {path}", file=sys.stderr, flush=True)
    folder, name = os.path.split(os.path.abspath(path))
    # Write to a temporary name, so that an incomplete archive is not taken for a complete one. The suffix stays the
    # same, because it selects the compression.
    part = f"{folder}/.part-{os.getpid()}-{name}"
    try:
        if broker.attrs.get("content.dump") == "auto":
            os.makedirs(folder, mode=0o700, exist_ok=True)
        status = await _flux(broker, "dump", "--quiet", part)
        if status:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
            return status
        os.replace(part, path)
        if broker.attrs.get("content.dump") == "auto":
            _point_to(folder, name)
    except OSError as exc:
        broker.log(logging.ERROR, "broker", f"content.dump: {path}: {exc.strerror}")
        return 1
    return 0


def _point_to(folder: str, name: str) -> None:
    link = f"{folder}/RESTORE"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(link)
    os.symlink(name, link)


async def _flux(broker: BrokerBase, *words: str) -> int:
    # The PATH of a broker's programs begins with the folder of its own `flux`. The umask hides the output of jobs from
    # other users.
    command = f"umask 077; {shlex.join(['flux', *words])}"
    return await run_command(broker, command, f"content.{words[0]}")


# The attribute that names the folder of crontabs.
_CRON_DIRECTORY = "cron.directory"


async def load_crontabs(broker: BrokerBase) -> None:
    """Load the crontabs on rank 0. A missing folder counts as empty. Raises RpcError for an invalid file."""
    folder = broker.attrs.get(_CRON_DIRECTORY, "")
    if broker.rank or not folder or not os.path.isdir(folder):
        return
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            continue
        # The PATH of a broker's programs begins with the folder of its own `flux`.
        command = shlex.join(["flux", "cron", "tab", path])
        if await run_command(broker, command, _CRON_DIRECTORY, output=LoggedOutput(broker, _CRON_DIRECTORY)):
            text = f"could not load crontab: {path}"
            broker.log(logging.CRITICAL, "broker", text)
            raise RpcError(errno.EINVAL, text)
