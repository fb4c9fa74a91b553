"""Environment variables with which a program of an instance's owner acts as another user (RFC 12)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

USERID = "FLUX_HANDLE_USERID"
ROLEMASK = "FLUX_HANDLE_ROLEMASK"
# The user whose jobs commands show and change by default. In Flux, this is always the user of the process.
OWN_USERID = "HEADRACE_USERID"
VARIABLES = (USERID, ROLEMASK, OWN_USERID)


def environment(userid: int, rolemask: int) -> Dict[str, str]:
    """The variables with which a program that runs as the owner acts on the jobs of a user.

    This is not a security boundary: a program may unset the variables.
    """
    return {USERID: str(userid), ROLEMASK: hex(rolemask), OWN_USERID: str(userid)}
