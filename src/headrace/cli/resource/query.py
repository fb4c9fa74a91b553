"""`headrace resource-query`: try job specifications on a resource graph, as Fluxion's command of that name does.

The engine needs Python 3.10 and is imported when the command runs, so that no other command pays for it.
"""

from __future__ import annotations

from typing import List

from headrace.cli.common.errors import CommandError


def main(argv: List[str]) -> int:
    """Run the command; returns the exit status."""
    try:
        from headrace.sched.graph import resource_query
    except ImportError as exc:
        raise CommandError(f"the resource graph is not available here: {exc}") from None
    return resource_query.main(argv)
