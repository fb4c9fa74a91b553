"""Environment and working directory of tasks, based on the submission's (flux-environment(7))."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.formats.spec import credential, jobid
from headrace.formats.spec import jobspec as specs
from headrace.formats.spec.message import ROLE_USER
from headrace.formats.spec.pmix import is_of_one_job

from . import node_variables
from .host import StartError
from .templates import expand
from .tmpdir import temporary

if TYPE_CHECKING:
    from headrace.engine.process.operations import Start

    from .templates import Names

# Variables of the instance from which the job was submitted. They do not apply to the instance in which it runs.
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


def job_environment(base: Mapping[str, Any], op: Start, names: Names, templates: Mapping[str, str]) -> dict[str, str]:
    """The environment that all tasks of the job share on this node.

    `base` is the environment of the submission. `templates` are variables whose values are templates.
    """
    env = {name: str(value) for name, value in base.items() if value is not None}
    for name in _INSTANCE:
        env.pop(name, None)
    for name in filter(is_of_one_job, list(env)):
        del env[name]
    if "HOSTNAME" in env and names.host:
        # Some shells set HOSTNAME. In `base`, it is the host of the submission.
        env["HOSTNAME"] = names.host
    env["FLUX_JOB_ID"] = names.f58
    env["FLUX_JOB_ID_PATH"] = op["idpath"]
    env["FLUX_JOB_SIZE"] = str(names.size)
    env["FLUX_JOB_NNODES"] = str(names.nnodes)
    env["FLUX_JOB_TMPDIR"] = names.tmpdir
    env["FLUX_KVS_NAMESPACE"] = f"job-{names.id}"
    env["FLUX_URI"] = op["uri"]
    # Makes Open MPI create its shared memory files in the job's folder, which is removed at the end.
    env["OMPI_MCA_btl_vader_backing_directory"] = names.tmpdir
    if op["userid"] != os.getuid():
        # A guest's job may run as the owner. In such a job, `flux cancel --all` must cancel the guest's jobs.
        env.update(credential.environment(op["userid"], ROLE_USER))
    node_variables.exchange(env, os.environ)
    env.update((name, expand(value, names.lookup)) for name, value in templates.items())
    temporary(env)
    return env


def enter_directory(op: Start, environment: Mapping[str, Any]) -> str:
    """Change to the directory in which tasks start, or else to /tmp; returns a warning for the log, or "".

    A shell that runs as the job's user raises StartError instead of using /tmp, because /tmp belongs to all users. Its
    default directory is the user's home.
    """
    as_user = op.get("as_user", False)
    cwd = specs.cwd(op["jobspec"]) or (str(environment["HOME"]) if as_user else "/tmp")
    try:
        os.chdir(cwd)
    except OSError as exc:
        warning = f"Could not change dir to {cwd}: {exc.strerror}"
        if as_user:
            raise StartError(warning) from None
        os.chdir("/tmp")
        return f"{warning}. Going to /tmp instead"
    return ""


def id_text(id: int, environment: Mapping[str, Any]) -> str:
    """A job's id as shown to users.

    The submission's environment decides the format, because scripts use the id that was printed at submission as a file
    name.
    """
    return jobid.encode(id, "f58plain") if environment.get("FLUX_F58_FORCE_ASCII") else jobid.encode(id)


def task_environment(env: Mapping[str, str], rank: int, local: int, gpus: str | None) -> dict[str, str]:
    """The environment of one task. `gpus` is its CUDA_VISIBLE_DEVICES; None leaves the variable as it is."""
    own = {**env, "FLUX_TASK_RANK": str(rank), "FLUX_TASK_LOCAL_ID": str(local)}
    if gpus is not None:
        own["CUDA_VISIBLE_DEVICES"] = gpus
        own["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return own
