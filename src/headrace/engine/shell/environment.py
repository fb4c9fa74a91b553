"""The environment of a job's tasks, from the submitter's (flux-environment(7))."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.formats.spec import credential, jobid
from headrace.formats.spec.pmix import is_of_one_job

# Variables that belong to the instance the job was submitted from, not to the one it runs in.
_INSTANCE = (
    "FLUX_PROXY_REMOTE",
    "FLUX_JOB_ID",
    "FLUX_JOB_SIZE",
    "FLUX_JOB_NNODES",
    "FLUX_JOB_TMPDIR",
    "FLUX_JOB_CC_ORIGINAL",
    "FLUX_TASK_RANK",
    "FLUX_TASK_LOCAL_ID",
    "FLUX_KVS_NAMESPACE",
    "FLUX_START_URI",
    *credential.VARIABLES,
    "PMI_FD",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_PORT",
    "PMI_SPAWNED",
)


def job_environment(
    base: Mapping[str, Any],
    jobid: str,
    idpath: str,
    size: int,
    nnodes: int,
    tmpdir: str,
    uri: str,
    namespace: str,
    host: str = "",
) -> dict[str, str]:
    """What every task of the job gets on the node `host`."""
    env = {name: str(value) for name, value in base.items() if value is not None}
    for name in _INSTANCE:
        env.pop(name, None)
    for name in filter(is_of_one_job, list(env)):
        del env[name]
    if "HOSTNAME" in env and host:
        # Some shells set it, and it names the host of the submission.
        env["HOSTNAME"] = host
    env["FLUX_JOB_ID"] = jobid
    env["FLUX_JOB_ID_PATH"] = idpath
    env["FLUX_JOB_SIZE"] = str(size)
    env["FLUX_JOB_NNODES"] = str(nnodes)
    env["FLUX_JOB_TMPDIR"] = tmpdir
    env["FLUX_KVS_NAMESPACE"] = namespace
    env["FLUX_URI"] = uri
    # Open MPI must keep its shared memory files where the job's other files are removed.
    env["OMPI_MCA_btl_vader_backing_directory"] = tmpdir
    return env


def id_text(id: int, environment: Mapping[str, Any]) -> str:
    """A job's id as users see it. The submitter's environment decides the form: scripts use the id that submission
    printed as a file name."""
    return jobid.encode(id, "f58plain") if environment.get("FLUX_F58_FORCE_ASCII") else jobid.encode(id)


def task_environment(env: Mapping[str, str], rank: int, local: int, gpus: str | None) -> dict[str, str]:
    """What one task gets: that of the job and its own; `gpus` are those it may see, None for whatever there is."""
    own = {**env, "FLUX_TASK_RANK": str(rank), "FLUX_TASK_LOCAL_ID": str(local)}
    if gpus is not None:
        own["CUDA_VISIBLE_DEVICES"] = gpus
        own["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return own
