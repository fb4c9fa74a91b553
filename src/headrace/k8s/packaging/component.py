"""The objects that install a program: account, roles, Deployment, Services, webhooks. Pure.

Sources: API reference of Kubernetes 1.34 (rbac, apps, admissionregistration v1), its Pod Security Standards
("restricted").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..objects.kinds import PROGRAM_LABEL, Kind
from .images import UNPRIVILEGED

Object = dict[str, Any]

READ = ("get", "list", "watch")
_RBAC = "rbac.authorization.k8s.io"
# The port of a webhook's Service: the usual port of HTTPS.
_HTTPS = 443


def rule(
    kinds: Sequence[Kind], verbs: Sequence[str], names: Sequence[str] = (), parts: Sequence[str] = ("",)
) -> Object:
    """A rule of a role (rbac/v1 PolicyRule) for `kinds` and their subresources `parts`.

    A part is "/status", for example; "" stands for the objects themselves.
    """
    found: Object = {
        "apiGroups": sorted({kind.group for kind in kinds}),
        "resources": [f"{kind.plural}{part}" for kind in kinds for part in parts],
        "verbs": list(verbs),
    }
    return {**found, "resourceNames": list(names)} if names else found


class Part(NamedTuple):
    """Additions of an install option to the container: words of the command, mounts and volumes."""

    words: Sequence[str] = ()
    mounts: Sequence[Object] = ()
    volumes: Sequence[Object] = ()


class Component(NamedTuple):
    """A program to install. All of its objects have its name in a label, most are in its namespace."""

    name: str
    namespace: str

    @property
    def labels(self) -> Object:
        return {PROGRAM_LABEL: self.name}

    def metadata(self, name: str, namespace: str = "", **more: Any) -> Object:
        return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": self.labels, **more}

    def namespace_object(self) -> Object:
        metadata = self.metadata(self.namespace)
        metadata["labels"]["pod-security.kubernetes.io/enforce"] = "restricted"
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}

    def account(self) -> Object:
        """The service account. Pods do not mount its token unless they ask for it, as the Deployment's do."""
        return {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": self.metadata(self.name, self.namespace),
            "automountServiceAccountToken": False,
        }

    def granted(self, name: str, namespace: str, rules: list[Object]) -> list[Object]:
        """A role and its binding to the account, for all namespaces if `namespace` is ""."""
        kind = f"{'' if namespace else 'Cluster'}Role"
        role = {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": self.metadata(name, namespace), "rules": rules}
        return [role, self.binding(name, namespace, kind, name)]

    def binding(self, name: str, namespace: str, kind: str, role: str) -> Object:
        """The binding of a role of this kind to the account, for all namespaces if `namespace` is ""."""
        return {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{'' if namespace else 'Cluster'}RoleBinding",
            "metadata": self.metadata(name, namespace),
            "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}],
        }

    def users_role(self, name: str, roles: Sequence[str], rules: list[Object]) -> Object:
        """A ClusterRole whose rules Kubernetes aggregates into the roles of users, such as "edit"."""
        metadata = self.metadata(name)
        for role in roles:
            metadata["labels"][f"{_RBAC}/aggregate-to-{role}"] = "true"
        return {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}

    def deployment(
        self, container: str, image: str, resources: Any, ports: dict[str, int], parts: Sequence[Part],
        replicas: int | str, strategy: str = "", volume_group: int | None = None,
    ) -> Object:  # fmt: skip
        """The Deployment. Its program answers probes at the port `health` and may write only to /tmp.

        With `strategy` "", Kubernetes' default applies. Volumes belong to the group `volume_group`.
        """
        group = {} if volume_group is None else {"fsGroup": volume_group}
        pod = {
            "serviceAccountName": self.name,
            "automountServiceAccountToken": True,
            "securityContext": {
                **{"runAsNonRoot": True, "runAsUser": UNPRIVILEGED, "seccompProfile": {"type": "RuntimeDefault"}},
                **group,
            },
            "containers": [_container(container, image, resources, ports, parts)],
            "volumes": [{"name": "tmp", "emptyDir": {}}, *(one for part in parts for one in part.volumes)],
            # Enough for the program to release its Lease when it stops.
            "terminationGracePeriodSeconds": 10,
        }
        spec = {
            "replicas": replicas,
            **({"strategy": {"type": strategy}} if strategy else {}),
            "selector": {"matchLabels": self.labels},
            "template": {"metadata": {"labels": self.labels}, "spec": pod},
        }
        metadata = self.metadata(self.name, self.namespace)
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}

    def service(self, port: str, number: int) -> Object:
        """The Service `COMPONENT-PORT` of a named port of the container."""
        return self._service(f"{self.name}-{port}", {"name": port, "port": number, "targetPort": port})

    def webhook_service(self, name: str) -> Object:
        """The Service with this name for the port `webhook` of the container."""
        return self._service(name, {"port": _HTTPS, "targetPort": "webhook"})

    def _service(self, name: str, port: Object) -> Object:
        spec = {"selector": self.labels, "ports": [port]}
        return {"apiVersion": "v1", "kind": "Service", "metadata": self.metadata(name, self.namespace), "spec": spec}

    def webhook_client(self, name: str, path: str) -> Object:
        """The `clientConfig` for `path` of the webhook, reached through the Service `name`."""
        return {"service": {"namespace": self.namespace, "name": name, "port": _HTTPS, "path": path}}

    def webhook_configuration(self, kind: Kind, name: str, hook: Object, **more: Any) -> Object:
        """A configuration with one webhook.

        `hook` has the fields that differ between programs; `more` are other fields of the metadata. The webhook must
        answer within 5 seconds and has no side effects.
        """
        same = {"sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5}
        return {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": self.metadata(name, **more),
            "webhooks": [{**hook, **same}],
        }


def webhook_rule(kind: Kind, operations: Sequence[str], parts: Sequence[str] = ("",)) -> Object:
    """A rule of a webhook (RuleWithOperations) for a kind and its subresources, such as "/scale"."""
    return {
        "apiGroups": [kind.group],
        "apiVersions": [kind.version],
        "operations": list(operations),
        "resources": [f"{kind.plural}{part}" for part in parts],
        "scope": "Namespaced",
    }


def secret_part(name: str, secret: str, folder: str, keys: Sequence[str], words: Sequence[str]) -> Part:
    """Mount keys of a Secret as files in `folder`; `words` are the arguments that name the files."""
    items = [{"key": key, "path": key} for key in keys]
    volume = {"name": name, "secret": {"secretName": secret, "items": items, "defaultMode": 0o440}}
    return Part(words, [{"name": name, "mountPath": folder, "readOnly": True}], [volume])


def _container(name: str, image: str, resources: Any, ports: dict[str, int], parts: Sequence[Part]) -> Object:
    return {
        "name": name,
        "image": image,
        "command": [word for part in parts for word in part.words],
        "ports": [{"name": port, "containerPort": number} for port, number in ports.items()],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 2},
        "resources": resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *(one for part in parts for one in part.mounts)],
    }
