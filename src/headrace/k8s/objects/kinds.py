"""Kinds of the API, as the paths of its REST interface name them.

This module does not import the client, because code that only makes objects, such as install files, needs no HTTP.

Source: Kubernetes API concepts (resource URIs).
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote


class Kind(NamedTuple):
    """A resource of the API: its group ("" is the core), version, plural name and kind."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of the URL. With namespace "", all namespaces, or a cluster-scoped resource."""
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        if namespace:
            parts.append(f"namespaces/{quote(namespace, safe='')}")
        parts += [part for part in (self.plural, quote(name, safe=""), subresource) if part]
        return "/".join(parts)


JOBS = Kind("batch", "v1", "jobs", "Job")
PODS = Kind("", "v1", "pods", "Pod")
SERVICES = Kind("", "v1", "services", "Service")
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap")
SECRETS = Kind("", "v1", "secrets", "Secret")
EVENTS = Kind("", "v1", "events", "Event")
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease")
MINICLUSTERS = Kind("flux-framework.org", "v1alpha2", "miniclusters", "MiniCluster")
JOBSETS = Kind("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
TRAINJOBS = Kind("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob")
MPIJOBS = Kind("kubeflow.org", "v2beta1", "mpijobs", "MPIJob")
_ADMISSION = "admissionregistration.k8s.io"
VALIDATING = Kind(_ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration")
MUTATING = Kind(_ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration")
APISERVICES = Kind("apiregistration.k8s.io", "v1", "apiservices", "APIService")
CLUSTER_ROLES = Kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole")

# The value of a MiniCluster's `spec.managedBy` that Headrace's operator accepts, besides "".
MANAGED_BY_US = "flux-framework.org/headrace-operator"

# The label with the name of a program. All objects of its install have it, and the objects that it creates for itself.
PROGRAM_LABEL = "app.kubernetes.io/name"

# The ConfigMap in which the API server publishes how its aggregation layer authenticates, and the Role that allows
# reading it. Kubernetes creates both.
AGGREGATION_NAMESPACE = "kube-system"
AGGREGATION_CONFIG_MAP = "extension-apiserver-authentication"
AGGREGATION_READER = "extension-apiserver-authentication-reader"


def api_service_name(group_version: str) -> str:
    """The name of the APIService of GROUP/VERSION."""
    group, _, version = group_version.partition("/")
    return f"{version}.{group}"
