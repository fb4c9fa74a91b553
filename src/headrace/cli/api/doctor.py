"""`headrace api doctor`: checks whether a service with several users can run here."""

from __future__ import annotations

import os

from headrace.cli.api import accounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Tuple


def run(options: Any) -> int:
    """Print one line for each check. The exit status is 1 if a check failed."""
    status = 0
    for right, text in _checks(options):
        print(f"{'ok   ' if right else 'WRONG'} {text}")
        status |= not right
    return status


def _checks(options: Any) -> Iterator[Tuple[bool, str]]:
    from headrace.formats.config import guests
    from headrace.wire.client.handle import Handle

    submit = ""
    try:
        with Handle() as handle:
            yield True, f"a broker answers at {os.environ.get('FLUX_URI', 'the address of the system instance')}"
            owner = int(handle.attr_get("security.owner"))
            mine = owner == os.getuid()
            yield mine, f"the instance's owner is user {owner}" + ("" if mine else f", but you are user {os.getuid()}")
            config = handle.rpc("config.get").get()
            submit = guests.submit(config)
            yield submit != guests.REFUSE, f'{guests.KEY} is "{submit}": {_MEANINGS[submit]}'
            if submit == guests.AS_USER:
                rundir = handle.attr_get("rundir")
                closed = guests.closed_folder(rundir)
                text = f"users of jobs can{'not' if closed else ''} enter the run directory {rundir}"
                yield not closed, f"{text}: {closed}" if closed else text
            if guests.mechanism(config) != guests.NONE:
                yield False, f'{guests.MECHANISM_KEY} is "{guests.MUNGE}", but the service cannot sign for its users'
    except OSError as exc:
        yield False, f"no broker answers: {exc.strerror or exc}"
    if options.auth == "pam":
        yield from _check_pam()
    yield from _check_store(options, submit)


# What each value of `submit` in [headrace.guests] means for a service with several users.
_MEANINGS = {
    "refuse": 'set submit = "as-owner", or "as-user" if the instance runs as root',
    "as-owner": "users are not protected from each other's processes",
    "as-user": "jobs run as their users, who must be in passwd",
}


def _check_pam() -> Iterator[Tuple[bool, str]]:
    from headrace.service.users import pam

    missing = pam.missing()
    yield not missing, missing or f"PAM has the service '{pam.SERVICE}'"
    # The helper of pam_unix(8) for callers that are not root checks the caller's own password only.
    why = "you are not root: with pam_unix, PAM can check your own password only"
    yield True, "you are root: PAM can check all passwords" if os.getuid() == 0 else why


def _check_store(options: Any, submit: str) -> Iterator[Tuple[bool, str]]:
    from headrace.service.store import database, memory, users
    from headrace.service.users import userids

    try:
        path = accounts.database(options)
        if not os.path.exists(path) and memory.read(path) is None:
            first = " (headrace api users add NAME)" if options.auth == "users" else ": the first login adds a user"
            yield options.auth != "users", f"{path}: there are no users yet{first}"
            return
        store = database.open_file(path)
    except (OSError, ValueError) as exc:
        yield False, str(exc)
        return
    found = users.everybody(store)
    yield bool(found), f"{path}: {len(found)} users, {sum(one.admin for one in found)} of them administrators"
    for one in found:
        wrong = userids.mismatch(one.name, one.userid, must_be_there=options.auth == "pam")
        if wrong:
            yield False, wrong
    if submit == "as-user":
        strangers = [one.name for one in found if userids.name_in_passwd(one.userid) is None]
        if strangers:
            yield False, f"not in passwd, so their jobs are refused: {', '.join(strangers)}"
