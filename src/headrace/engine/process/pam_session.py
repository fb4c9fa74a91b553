"""PAM sessions: a site uses them for settings such as limits (pam_limits(8)), or to deny access."""

from __future__ import annotations

import os

from .user import UserError

# The folders where libpam looks for the file of a service (pam.d(5)).
FOLDERS = ("/etc/pam.d", "/usr/lib/pam.d")


def missing(service: str) -> str:
    """The reason why a PAM service has no sessions on this host, or "" if it does."""
    if not any(os.path.exists(os.path.join(folder, service)) for folder in FOLDERS):
        # libpam would use the service `other`, which may not be meant for this.
        return f"PAM has no service '{service}': make {FOLDERS[0]}/{service} (on Debian as {FOLDERS[0]}/other)"
    try:
        import pamela  # noqa: F401 - whether it is there
    except ImportError as exc:
        return f"PAM needs the extra pam ({exc.name} is missing): pip install '.[pam]' in a copy of the repository"
    return ""


def open_session(name: str, service: str) -> None:
    """Open a session of a user for this process, which must be root's.

    The process gets the settings of the service. The session is never closed, since the process will become the user's.
    Raises UserError if the account may not be used, or if a PAM module fails.
    """
    if why := missing(service):
        raise UserError(why)
    import pamela

    try:
        handle = pamela.pam_start(service, name, encoding="utf-8")
        failure = pamela.PAM_ACCT_MGMT(handle, 0) or pamela.PAM_OPEN_SESSION(handle, 0)
        pamela.pam_end(handle, failure)
    except pamela.PAMError as exc:
        raise UserError(f"PAM (service {service}) refuses user {name}: {exc.message}") from None
