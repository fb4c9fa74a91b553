from __future__ import annotations

import os

from headrace.formats.spec.message import ROLE_ADMIN, ROLE_LOCAL, ROLE_OWNER, ROLE_USER
from headrace.service.users import credential


def test_the_roles_are_those_of_the_brokers_socket() -> None:
    assert credential.owner()[1:] == (os.getuid(), ROLE_OWNER | ROLE_LOCAL)
    assert credential.user("ann", 7) == ("ann", 7, ROLE_USER)
    assert credential.user("ann", 7, admin=True) == ("ann", 7, ROLE_USER | ROLE_ADMIN)


def test_programs_of_a_user_have_the_users_credential_and_those_of_the_owner_need_none() -> None:
    assert credential.owner().environment() == {}
    found = credential.user("ann", 7).environment()
    assert found == {"FLUX_HANDLE_USERID": "7", "FLUX_HANDLE_ROLEMASK": "0x2", "HEADRACE_USERID": "7"}


def test_owners_and_administrators_see_the_jobs_of_all() -> None:
    assert credential.owner().sees_all and credential.user("ann", 7, admin=True).sees_all
    assert not credential.user("ann", 7).sees_all
