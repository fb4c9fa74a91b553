"""Names of a MiniCluster's objects and of the operator's own, labels, paths, ports and phases.

Users and scripts depend on them. Names, labels and paths without a comment are those of the Flux Operator (v1alpha2). A
name has at most 63 characters: validation refuses a MiniCluster with longer host names.
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
CLUSTER = "flux-framework.org/minicluster"  # on every pod: those of the Job, of groups and of services
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
# In the pods of a group, this variable has the group's name. The MiniCluster's own pods do not have it.
GROUP_VARIABLE = "HEADRACE_POD_GROUP"

_LONGEST = 63

# Keeps a MiniCluster that is being deleted until its queue is saved.
FINALIZER = "flux-framework.org/headrace-save"


# Phases (`status.phase`).
PENDING = "Pending"
STARTING = "Starting"
RUNNING = "Running"
SUSPENDED = "Suspended"
FINISHED = "Finished"
FAILED = "Failed"
INVALID = "Invalid"

# The operator itself.
DEFAULT_NAMESPACE = "headrace-system"
# The name of the Deployment, service account and roles, and the value of their label `app.kubernetes.io/name`.
OPERATOR = "headrace-operator"
LEASE = OPERATOR
# The ClusterRole with the rights to register the APIs of metrics. It owns their APIServices.
METRICS_ROLE = f"{OPERATOR}-metrics-api"
# The Service of the webhook and the Secret of its certificate.
WEBHOOK = "headrace-webhook"
# The webhook configurations and paths: for the validation of MiniClusters, and for labelled Jobs.
CONFIGURATION = "headrace-miniclusters"
WEBHOOK_PATH = "/validate"
JOBS_CONFIGURATION = "headrace-jobs"
JOBS_PATH = "/mutate-jobs"
WEBHOOK_PORT = 9443
METRICS_PORT = 8080
HEALTH_PORT = 8081
# The Lease of the Flux Operator (leader-election id of its manager).
OTHER_LEASE = "14dde902.flux-framework.org"
# The namespace of that Lease, which the Flux Operator's installation creates.
OTHER_NAMESPACE = "operator-system"


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
    """The name of a volume.

    It is a label (RFC 1123), so it must be shorter than the name of a ConfigMap or Secret.
    """
    name = f"{cluster.name}-{part}"
    return name if len(name) <= _LONGEST else part
