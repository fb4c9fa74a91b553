"""Names in the Jobs of foreign clusters, shared by admission, controller and runner.

They are labels, annotations, volumes and paths.
"""

from __future__ import annotations

from headrace.minicluster.api.pod_plan import PLAN_FILE
from headrace.minicluster.operator.keys import MOUNTED

from ..read.cluster import OUR_CONTAINER, OUR_MOUNTS, OUR_VOLUMES

# The label of the Job and of its pods with the cluster's ID, ten hexadecimal digits.
ID_LABEL = "flux-framework.org/headrace-cluster"
ID_LENGTH = 10
# The annotation of the Job that says how the cluster has ended.
STATUS_ANNOTATION = "flux-framework.org/headrace-status"

VIEW_CONTAINER = OUR_CONTAINER
# The volumes, in this order: the copy of the view and the runner's files; the Secret; /dev/shm; the view's image, if
# pods mount it.
VIEW_VOLUME, CLUSTER_VOLUME, SHARED_MEMORY_VOLUME, IMAGE_VOLUME = OUR_VOLUMES
VIEW_ROOT, CLUSTER_FOLDER = OUR_MOUNTS
# The keys of the Secret that are mounted as files in CLUSTER_FOLDER.
CLUSTER_FILES = (PLAN_FILE, *MOUNTED)
# The mode of the runner for these clusters: it starts the broker, and takes the words after it as the job's command.
MODE = "cluster"


def secret(cluster_id: str) -> str:
    """The Secret with the plan and the keys of a cluster."""
    return f"headrace-{cluster_id}"


def service(cluster_id: str) -> str:
    """The headless Service of a cluster whose Job names no subdomain."""
    return f"headrace-{cluster_id}"
