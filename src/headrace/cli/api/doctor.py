"""`headrace api doctor`: whether a service with several users can work here, and what is wrong."""

from __future__ import annotations

import os

from headrace.cli.api import accounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Tuple


def run(options: Any) -> int:
    """Print a line for each thing; the status is 1 where one is wrong."""
    status = 0
    for right, text in _checks(options):
        print(f"{'ok   ' if right else 'WRONG'} {text}")
        status |= not right
    return status


def _checks(options: Any) -> Iterator[Tuple[bool, str]]:
    from headrace.client.handle import Handle
    from headrace.config import guests

    try:
        with Handle() as handle:
            yield True, f"a broker answers at {os.environ.get('FLUX_URI', 'the address of the system instance')}"
            owner = int(handle.attr_get("security.owner"))
            mine = owner == os.getuid()
            yield mine, f"the instance's owner is user {owner}" + ("" if mine else f", this is user {os.getuid()}")
            submit = guests.submit(handle.rpc("config.get").get())
            remedy = f': with several users set submit = "{guests.AS_OWNER}"' if submit == guests.REFUSE else ""
            yield submit != guests.REFUSE, f'{guests.KEY} is "{submit}"{remedy}'
    except OSError as exc:
        yield False, f"no broker answers: {exc.strerror or exc}"
    yield from _check_store(options)


def _check_store(options: Any) -> Iterator[Tuple[bool, str]]:
    from headrace.api.store import database, users

    try:
        path = accounts.database(options)
        if not os.path.exists(path):
            yield False, f"{path}: there are no users yet (headrace api users add NAME)"
            return
        engine = database.open_file(path)
    except (OSError, ValueError) as exc:
        yield False, str(exc)
        return
    found = users.everybody(engine)
    engine.dispose()
    yield bool(found), f"{path}: {len(found)} users, {sum(one.admin for one in found)} of them administrators"
