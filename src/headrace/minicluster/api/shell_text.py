"""Shell text around an instance, for the local runner and pods, and commands without a shell. Pure."""

from __future__ import annotations

import enum

# Characters that are special to a shell: outside of quotes, and within double quotes.
_SPECIAL = frozenset("|&;<>()$`\\*?[]#~{}!\n")
_SPECIAL_QUOTED = frozenset("$`\\!")


class Mode(enum.Enum):
    """How the command of a MiniCluster is run."""

    INTERACTIVE = "interactive"  # no command: the instance runs until it is stopped
    BATCH = "batch"  # each line is a job of a batch script
    LAUNCHER = "launcher"  # the command submits jobs itself
    SUBMIT = "submit"  # the command is one job


def outer_text(before: str, start: str, after: str, *, strict: bool, quiet: bool) -> str:
    """Shell text of the whole run: `before`, the command `start` that runs the brokers, and `after`.

    If SIGTERM arrives before or after the brokers run, the shell ends at once. If it arrives while they run, the shell
    waits until they have ended, and then runs `after`. The exit status is that of `start`.
    """
    if before and quiet:
        before = f"{{\n{before}}} > /dev/null\n"
    # Only bash has `set -E -o pipefail`, which the Flux Operator uses.
    flags = 'set -eu\n[ -z "${BASH:-}" ] || set -E -o pipefail\n' if strict else ""
    # All variables that the user's text sets are exported to the job.
    return (
        f"set -a\n{flags}{before}set +e\ntrap : TERM\n{start}\nheadrace_status=$?\n"
        f"trap - TERM\n{flags}{after}exit $headrace_status\n"
    )


def sidecar_text(before: str, command: str, after: str, *, strict: bool, quiet: bool) -> str:
    """Shell text of a sidecar.

    If SIGTERM arrives while `command` runs, the shell waits for the end of its current program, and skips the rest of
    `command`. `after` is always run. The exit status is that of `command`, or 143 after SIGTERM.
    """
    if before and quiet:
        before = f"{{\n{before}}} > /dev/null\n"
    flags = 'set -eu\n[ -z "${BASH:-}" ] || set -E -o pipefail\n' if strict else ""
    return (
        f"set -a\n{flags}{before}set +e\nheadrace_after() {{\ntrap - TERM\n{flags}{after}:\n}}\n"
        f"trap 'headrace_after; exit 143' TERM\n{command}\nheadrace_status=$?\nheadrace_after\nexit $headrace_status\n"
    )


def inner_text(mode: Mode, program: str, *, ready: str = "", done: str = "") -> str:
    """Shell text inside the instance; `ready` and `done` are commands before and after the program."""
    if mode is Mode.INTERACTIVE:
        program = 'trap "exit 0" TERM HUP\nsleep infinity &\nwait\n'
    return f"export fluxsocket=$FLUX_URI\n{ready}{program}headrace_status=$?\n{done}exit $headrace_status\n"


def plain_words(text: str) -> list[str] | None:
    """The words of a command that has only plain and quoted words; None for a command that needs a shell."""
    words: list[str] = []
    # None between words, because a quoted word may be empty.
    word: str | None = None
    quote = ""
    for character in text.strip():
        if quote == "'" and character != "'":
            word = (word or "") + character
        elif quote and character == quote:
            quote = ""
        elif character in (_SPECIAL_QUOTED if quote else _SPECIAL):
            return None
        elif not quote and character in "'\"":
            quote, word = character, word or ""
        elif not quote and character in " \t":
            words += [] if word is None else [word]
            word = None
        else:
            word = (word or "") + character
    if quote:
        return None
    words += [] if word is None else [word]
    # A shell treats a first word with "=" as an assignment.
    return words if words and "=" not in words[0] else None
