"""Names in the Jobs of foreign clusters: labels, annotations, volumes and paths that admission, controller and runner
share.
"""

from __future__ import annotations

from headrace.minicluster.api.pod_plan import PLAN_FILE
from headrace.minicluster.operator.keys import MOUNTED

from ..read.cluster import OUR_CONTAINER, OUR_MOUNTS, OUR_VOLUMES

# The cluster's ID, ten hexadecimal digits: on the Job, and on its pods.
ID_LABEL = "flux-framework.org/headrace-cluster"
ID_LENGTH = 10
# How the cluster has ended, on the Job.
STATUS_ANNOTATION = "flux-framework.org/headrace-status"

VIEW_CONTAINER = OUR_CONTAINER
# The view's copy, and what the runner writes; the Secret; /dev/shm; the view's image where pods mount it.
VIEW_VOLUME, CLUSTER_VOLUME, SHARED_MEMORY_VOLUME, IMAGE_VOLUME = OUR_VOLUMES
VIEW_ROOT, CLUSTER_FOLDER = OUR_MOUNTS
# The keys of the Secret that are files in CLUSTER_FOLDER.
CLUSTER_FILES = (PLAN_FILE, *MOUNTED)
# The mode of the runner in which it starts the broker and keeps the words after it for the job.
MODE = "cluster"


def secret(cluster_id: str) -> str:
    """The Secret with the plan and the keys of a cluster."""
    return f"headrace-{cluster_id}"


def service(cluster_id: str) -> str:
    """The headless Service of a cluster whose pods were given no subdomain."""
    return f"headrace-{cluster_id}"
