"""What commands about resources take from their user: an answer on standard input, the nodes of `--include`."""

from __future__ import annotations

from headrace.cli.common.errors import CommandError
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.wire.query.resource_sets import Given

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headrace.formats.spec.rset import ResourceSet


def given_on_stdin() -> Given:
    """The answer that standard input has as a JSON object, an empty one for nothing. Raises CommandError."""
    import json
    import sys

    text = sys.stdin.read()
    try:
        answer = json.loads(text) if text.strip() else {}
    except ValueError as exc:
        raise CommandError(f"standard input is not JSON: {exc}") from None
    if not isinstance(answer, dict):
        raise CommandError("standard input must be a JSON object")
    return Given(answer)


def included(found: ResourceSet, text: str) -> ResourceSet:
    """The part of a set on the nodes of `--include`: ranks, or hosts. Raises CommandError."""
    try:
        return found.select_ranks(Idset.parse(text))
    except ValueError:
        pass
    try:
        return found.select_hosts(Hostlist.parse(text))
    except ValueError:
        raise CommandError(f"--include: invalid targets: {text}") from None
