"""Environment variables by which a program of an instance's owner speaks to the broker as another user (RFC 12)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

USERID = "FLUX_HANDLE_USERID"
ROLEMASK = "FLUX_HANDLE_ROLEMASK"
# The user whose jobs commands take for their own. In Flux, that is always the user of the process.
OWN_USERID = "HEADRACE_USERID"
VARIABLES = (USERID, ROLEMASK, OWN_USERID)


def environment(userid: int, rolemask: int) -> Dict[str, str]:
    """Variables with which programs that run for a user, but not as that user, are about the user's jobs.

    They are no protection: a program may unset them.
    """
    return {USERID: str(userid), ROLEMASK: hex(rolemask), OWN_USERID: str(userid)}
