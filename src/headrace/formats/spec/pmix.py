"""The environment variables that announce a PMIx server to the tasks of one job."""

from __future__ import annotations


def is_of_one_job(name: str) -> bool:
    """True if the variable `name` describes the PMIx server of one job and is useless outside that job.

    Parameters of libpmix (`PMIX_MCA_...`) are the user's settings, so the result is False for them.
    """
    return name.startswith("PMIX_") and not name.startswith("PMIX_MCA_")
