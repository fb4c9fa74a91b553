"""How a command ends early: one exception that carries the line for stderr and the exit status.

Flux has two families of commands with their own manners: `flux-jobs: ERROR: TEXT` (and `[Errno N] TEXT` for a
broker's refusal) and `flux-job: TEXT`. A command module says which by its PREFIX; the driver prints and exits.
"""

from __future__ import annotations


class CommandError(Exception):
    """`text` is what the user reads after the command's prefix ("" prints nothing), `status` the exit status."""

    def __init__(self, text: str, status: int = 1, *, bare: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.status = status
        self.bare = bare
