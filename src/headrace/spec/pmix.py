"""The environment variables by which a PMIx server is announced to the tasks of one job."""

from __future__ import annotations


def is_of_one_job(name: str) -> bool:
    """Whether the variable `name` is about the PMIx server of one job, and says nothing to programs outside it.

    Parameters of libpmix (`PMIX_MCA_...`) are the user's.
    """
    return name.startswith("PMIX_") and not name.startswith("PMIX_MCA_")
