"""Names of a MiniCluster's Kubernetes objects, and the labels, paths and ports that users and other parts depend on.

Names, labels and paths without a comment are those of the Flux Operator (v1alpha2), on which existing scripts and YAML
files depend. A name has at most 63 characters: validation refuses a MiniCluster with longer host names.
"""

from __future__ import annotations

from ..api.fields import Group, MiniCluster, View
from ..api.pod_plan import KEYS_FOLDER, PLAN_FOLDER, VIEW

# Labels. The last two are Headrace's own.
APP = "app"
APP_VALUE = "flux-operator"
APP_NAME = "app.kubernetes.io/name"
JOB_NAME = "job-name"
NAMESPACE = "namespace"
HPA_SELECTOR = "hpa-selector"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "headrace"
CLUSTER = "flux-framework.org/minicluster"  # on every pod of a MiniCluster: its Job's, its groups', its services'
# Set by Kubernetes on each pod of an Indexed Job (1.28 and later).
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"

# Paths in a container, in addition to those of `pod_plan`.
VIEW_ROOT = VIEW.rpartition("/")[0]  # the default of `flux.container.mountPath`
RUNNER = f"{VIEW}/bin/headrace-pod"
CONFIG_MOUNT = f"{PLAN_FOLDER}/"
KEYS_MOUNT = f"{KEYS_FOLDER}/"
HOME_MOUNT = "/home/flux-operator"
SOFTWARE_MOUNT = "/opt/software"

HOME_VOLUME = "flux-operator-home"
SOFTWARE_VOLUME = "spack-software"
VIEW_IMAGE_VOLUME = "headrace-view"
# Set in the pods of a group to its name; the MiniCluster's own pods do not have this variable.
GROUP_VARIABLE = "HEADRACE_POD_GROUP"

_LONGEST = 63

# Keeps a MiniCluster that is being deleted until its queue is saved.
FINALIZER = "flux-framework.org/headrace-save"


def job(cluster: MiniCluster) -> str:
    return cluster.name


def group_job(cluster: MiniCluster, group: Group) -> str:
    return f"{cluster.name}-{group.name}"


def config_map(cluster: MiniCluster) -> str:
    return f"{cluster.name}-entrypoint"


def secret(cluster: MiniCluster) -> str:
    return secret_of(cluster.name)


def secret_of(name: str) -> str:
    """The Secret of a MiniCluster of that name, whose spec may be invalid."""
    return f"{name}-curve"


def service(cluster: MiniCluster) -> str:
    """The Service of the pods' host names; its name is also their subdomain."""
    network = cluster.spec.network
    return (network.headless_name if network else "") or cluster.name


def services_pod(cluster: MiniCluster) -> str:
    return f"{cluster.name}-services"


def view_volume(cluster: MiniCluster) -> str:
    return (cluster.flux.container or View()).name


def config_volume(cluster: MiniCluster) -> str:
    return _volume(cluster, "entrypoint")


def keys_volume(cluster: MiniCluster) -> str:
    return _volume(cluster, "curve")


def _volume(cluster: MiniCluster, part: str) -> str:
    """The name of a volume is a label, and so shorter than a ConfigMap's or Secret's name may be (RFC 1123)."""
    name = f"{cluster.name}-{part}"
    return name if len(name) <= _LONGEST else part
