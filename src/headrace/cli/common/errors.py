"""How a command ends early: one exception that carries the line for stderr and the exit status.

Flux has two families of commands with different error lines: `flux-jobs: ERROR: TEXT` (with `[Errno N] TEXT` for an
error from a broker) and `flux-job: TEXT`. A command module chooses one by its PREFIX; the driver prints and exits.
"""

from __future__ import annotations

import errno

# Errors of this machine and not of a request: the errno would not help the reader.
_OF_THE_MACHINE = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
)


class CommandError(Exception):
    """`text` is printed after the command's prefix ("" prints nothing), `status` is the exit status.

    With `bare` the text is printed without the prefix.
    """

    def __init__(self, text: str, status: int = 1, *, bare: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.status = status
        self.bare = bare


def missing_extra(what: str, extra: str, missing: ImportError) -> CommandError:
    """The error if `what` needs the package `missing`, which the extra `extra` of pyproject.toml installs."""
    how = f"pip install '.[{extra}]' in a copy of the repository"
    return CommandError(f"{what} needs the extra {extra} ({missing.name} is missing): {how}")


def refusal(exc: OSError) -> str:
    """The text of an error in the first family.

    An error from a broker has its errno, a local one does not.
    """
    if exc.filename is None and exc.errno not in _OF_THE_MACHINE:
        return str(exc)
    from headrace.formats.spec.os_error import text_of

    return text_of(exc)
