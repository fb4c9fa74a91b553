"""Names that users, scripts and other programs rely on, and the names of the program itself.

Kinds, labels, annotations and the gate. The group of FluxJobs, the gate and `fluxqueue/fluxion-nodes` are those of
fluxqueue.
"""

from __future__ import annotations

from headrace.k8s.objects.kinds import Kind

GROUP = "jobs.converged-computing.org"
VERSION = "v1alpha1"
FLUXJOBS = Kind(GROUP, VERSION, "fluxjobs", "FluxJob")
FLUXQUEUES = Kind(GROUP, VERSION, "fluxqueues", "FluxQueue")
FLUXHISTORIES = Kind(GROUP, VERSION, "fluxhistories", "FluxHistory")
NODES = Kind("", "v1", "nodes", "Node")
NAMESPACES = Kind("", "v1", "namespaces", "Namespace")
PRIORITY_CLASSES = Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass")

CLAIMS = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
# The policy that checks FluxHistories on creation, and its binding.
POLICIES = Kind("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy")
POLICY_BINDINGS = Kind(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"
)
# Reviews: whether a user may do something, and who the requester is.
ACCESS_REVIEWS = Kind("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview")
SELF_REVIEWS = Kind("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview")
# Assigns a pod to a node.
BINDINGS = Kind("", "v1", "bindings", "Binding")

# The type of a FluxJob that belongs to no object: it was matched for another scheduler.
EXTERNAL = 10

# The scheduler names of pods that this program binds itself. The first is set on pods of queues that bind.
SCHEDULERS = ("FluxionScheduler", "headrace", "fluence")
# The scheduling gate of a waiting pod.
GATE = "fluxqueue"
# The label of a namespace, which names its queue.
QUEUE = "fluxqueue/queue"
# The label of a FluxJob and of its pods: the job's id (RFC 19, decimal).
JOBID = "fluxqueue/jobid"
# The annotation of a pod: the node that it was given.
PLACE = "fluxqueue/fluxion-nodes"
# The annotation of an object suspended by the webhook. A suspended object without it was suspended by its user.
HELD = "fluxqueue/held"
# The annotation of an object with the deadline that the queue (not its user) has set, in seconds.
DEADLINE = "fluxqueue/deadline"
# The annotation by which a user keeps a waiting object out of the order of its queue ("true") until it is removed.
HOLD = "fluxqueue/hold"
# The annotation that says how long an object runs (RFC 23).
DURATION = "fluxqueue/duration"
# The annotation of a Deployment or ReplicaSet whose pods start together.
GANG = "fluxqueue/gang"
# The annotation that names a label of the queue's topology: all pods of an object have nodes with one value of it.
WITHIN = "fluxqueue/within"
# The label of pods that start together, and the annotation with their number. Fluence uses two labels.
GROUP_NAMES = ("fluxqueue/group", "scheduling.x-k8s.io/pod-group")
GROUP_SIZES = ("fluxqueue/group-size", "fluence.group-size")
# Labels of objects that do not wait here: by the user's wish, or because Kueue manages them.
SKIP = "fluxqueue/skip"
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"

# The name of the program: of Deployment, service account, roles and Lease, and in Events.
FLUXQUEUE = "headrace-fluxqueue"
DEFAULT_NAMESPACE = "fluxqueue-system"
# The Service of the webhook and the Secret of its certificate.
WEBHOOK = f"{FLUXQUEUE}-webhook"
CONFIGURATION = FLUXQUEUE
# The policy of FluxHistories, and its binding.
HISTORY_POLICY = f"{FLUXQUEUE}-history"
# The policies by which only the queue writes FluxJobs and only the queue releases what it holds. Their bindings have
# the same names.
FLUXJOB_POLICY = f"{FLUXQUEUE}-jobs"
HELD_POLICY = f"{FLUXQUEUE}-held"
# The policy that keeps users from bypassing the order, and its binding.
ORDER_POLICY = f"{FLUXQUEUE}-order"
HOLD_PATH = "/hold-v1"
WEBHOOK_PORT = 9443
METRICS_PORT = 8080
HEALTH_PORT = 8081
GRPC_PORT = 4242
# The queue that is created at installation.
DEFAULT_QUEUE = "default"
