"""Sessions of PAM: what a site sets for each session of a user, as limits (pam_limits(8)), and who may have none."""

from __future__ import annotations

import os

from .user import UserError

# Where libpam looks for the file of a service (pam.d(5)).
FOLDERS = ("/etc/pam.d", "/usr/lib/pam.d")


def missing(service: str) -> str:
    """Why there are no sessions of a service of PAM on this host; "" if there are."""
    if not any(os.path.exists(os.path.join(folder, service)) for folder in FOLDERS):
        # libpam would take the service `other`, which need not be meant for this.
        return f"PAM has no service '{service}': make {FOLDERS[0]}/{service} (on Debian as {FOLDERS[0]}/other)"
    try:
        import pamela  # noqa: F401 - whether it is there
    except ImportError as exc:
        return f"PAM needs the extra pam ({exc.name} is missing): pip install '.[pam]' in a copy of the repository"
    return ""


def open_session(name: str, service: str) -> None:
    """Open a session of a user for this process, which is root's: it gets what modules of the service set for it.

    Nobody closes the session, since the process will be the user's. Raises UserError where the account may not be
    used, or a module fails.
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
