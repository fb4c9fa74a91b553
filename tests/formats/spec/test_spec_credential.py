from __future__ import annotations

from headrace.formats.spec import credential
from headrace.formats.spec.message import ROLE_USER


def test_a_program_for_a_user_speaks_as_the_user_and_takes_the_users_jobs_for_its_own() -> None:
    found = credential.environment(1234, ROLE_USER)
    assert found == {"FLUX_HANDLE_USERID": "1234", "FLUX_HANDLE_ROLEMASK": "0x2", "HEADRACE_USERID": "1234"}
    assert set(found) == set(credential.VARIABLES)
