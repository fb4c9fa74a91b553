"""How a command ends early: one exception that carries the line for stderr and the exit status.

Flux has two families of commands with their own manners: `flux-jobs: ERROR: TEXT` (and `[Errno N] TEXT` for a
broker's refusal) and `flux-job: TEXT`. A command module says which by its PREFIX; the driver prints and exits.
"""

from __future__ import annotations

import errno

# What is wrong with a machine and not with a request: no number helps who reads that.
_OF_THE_MACHINE = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
)


class CommandError(Exception):
    """`text` is what the user reads after the command's prefix ("" prints nothing), `status` the exit status."""

    def __init__(self, text: str, status: int = 1, *, bare: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.status = status
        self.bare = bare


def missing_extra(what: str, extra: str, missing: ImportError) -> CommandError:
    """The error where a package of an extra (pyproject.toml) is not installed, which `what` needs."""
    how = f"pip install '.[{extra}]' in a copy of the repository"
    return CommandError(f"{what} needs the extra {extra} ({missing.name} is missing): {how}")


def refusal(exc: OSError) -> str:
    """The text of an error in the first family: a broker's with its number, one of this machine without."""
    if exc.filename is None and exc.errno not in _OF_THE_MACHINE:
        return str(exc)
    from headrace.formats.spec.os_error import text_of

    return text_of(exc)
