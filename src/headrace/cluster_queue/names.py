"""Names that users, scripts and other programs rely on: kinds, labels, annotations, the gate; and those of the program.

The group of FluxJobs, the gate and `fluxqueue/fluxion-nodes` are fluxqueue's.
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
# What the API server checks of a FluxHistory when it is created, and where the check applies.
POLICIES = Kind("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy")
POLICY_BINDINGS = Kind(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"
)
# What tells whether a user may do something, and who it is that asks.
ACCESS_REVIEWS = Kind("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview")
SELF_REVIEWS = Kind("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview")
# What gives a pod to a node.
BINDINGS = Kind("", "v1", "bindings", "Binding")

# The type of a FluxJob that belongs to no object: it was matched for another scheduler.
EXTERNAL = 10

# The scheduler names of pods that this program binds itself: the first is given to pods of queues that bind.
SCHEDULERS = ("FluxionScheduler", "headrace", "fluence")
# The scheduling gate of a pod that waits.
GATE = "fluxqueue"
# The label of a namespace, which names its queue.
QUEUE = "fluxqueue/queue"
# The label of a FluxJob and of its pods: the job's id (RFC 19, decimal).
JOBID = "fluxqueue/jobid"
# The annotation of a pod: the node that it was given.
PLACE = "fluxqueue/fluxion-nodes"
# The annotation of an object that the webhook has suspended. An object that is suspended without it was suspended by
# its user.
HELD = "fluxqueue/held"
# The annotation of an object with the deadline that the queue has given it (seconds): it is not its user's.
DEADLINE = "fluxqueue/deadline"
# The annotation by which a user keeps an object that waits out of the order of its queue ("true"), until it is gone.
HOLD = "fluxqueue/hold"
# The annotation that says how long an object runs (RFC 23).
DURATION = "fluxqueue/duration"
# The annotation of a Deployment or ReplicaSet whose pods start together.
GANG = "fluxqueue/gang"
# The annotation that names a label of the queue's topology: all pods of an object have nodes with one value of it.
WITHIN = "fluxqueue/within"
# The label of pods that start together, and the annotation with their number; and Fluence's, which are both labels.
GROUP_NAMES = ("fluxqueue/group", "scheduling.x-k8s.io/pod-group")
GROUP_SIZES = ("fluxqueue/group-size", "fluence.group-size")
# Labels of objects that are left alone: by the user's wish, and as they are Kueue's.
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
# The policies by which the queue alone writes FluxJobs, and lets go what it holds, and their bindings.
FLUXJOB_POLICY = f"{FLUXQUEUE}-jobs"
HELD_POLICY = f"{FLUXQUEUE}-held"
# The policy by which users keep to the order, and its binding.
ORDER_POLICY = f"{FLUXQUEUE}-order"
HOLD_PATH = "/hold-v1"
WEBHOOK_PORT = 9443
METRICS_PORT = 8080
HEALTH_PORT = 8081
GRPC_PORT = 4242
# The queue that the install makes.
DEFAULT_QUEUE = "default"
