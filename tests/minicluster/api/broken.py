"""MiniCluster specifications that break one rule each, with the path that the refusal names."""

from __future__ import annotations

from typing import Any

Broken = list[tuple[dict[str, Any], str]]
LEAD = "spec.flux.bursting.leadBroker"

CLUSTER: Broken = [
    ({"size": 0}, "spec.size"),
    ({"size": 4, "maxSize": 2}, "spec.maxSize"),
    ({"size": 2, "minSize": 3, "maxSize": 4}, "spec.minSize"),
    ({"tasks": -1}, "spec.tasks"),
    ({"tasks": 2**31}, "spec.tasks"),
    ({"tasks": True}, "spec.tasks"),
    ({"backoffLimit": -1}, "spec.backoffLimit"),
    ({"services": [{"image": "x"}]}, "spec.services[0].name"),
    ({"services": [{"name": "s", "commands": {"pre": "x"}}]}, "spec.services[0].commands"),
    ({"flux": {"brokerConfig": "a ="}}, "spec.flux.brokerConfig"),
    ({"flux": {"brokerConfig": "access.allow-guest-user = 'yes'"}}, "spec.flux.brokerConfig"),
    ({"flux": {"connectTimeout": "soon"}}, "spec.flux.connectTimeout"),
    ({"flux": {"curveCert": "any text"}}, "spec.flux.curveCert"),
    ({"flux": {"optionFlags": "--env='A=b"}}, "spec.flux.optionFlags"),
    ({"flux": {"topology": "kary:x"}}, "spec.flux.topology"),
    ({"flux": {"environment": {"A=B": "x"}}}, "spec.flux.environment.A=B"),
    ({"flux": {"bursting": {"hostlist": "x["}}}, "spec.flux.bursting.hostlist"),
    ({"flux": {"bursting": {"clusters": [{"name": "A_", "size": 1}]}}}, "spec.flux.bursting.clusters[0].name"),
    (
        {"flux": {"bursting": {"leadBroker": {"address": "a", "name": "x", "size": 1, "port": 65536}}}},
        "spec.flux.bursting.leadBroker.port",
    ),
    ({"flux": {"bursting": {"clusters": [{"name": "a", "size": -1}]}}}, "spec.flux.bursting.clusters[0].size"),
    ({"flux": {"scheduler": {"queuePolicy": "best"}}}, "spec.flux.scheduler.queuePolicy"),
    ({"flux": {"bursting": {"leadBroker": {"name": "x", "size": 1}}}}, "spec.flux.bursting.leadBroker.address"),
    ({"pod": {"hostIpc": True}}, "spec.pod.hostIpc"),
    ({"pod": {"restartPolicy": "Always"}}, "spec.pod.restartPolicy"),
    ({"pod": {"resources": {"cpu": "lots"}}}, "spec.pod.resources.cpu"),
]
for _address, _name, _field in (("a b", "x", "address"), ("a[", "x", "address"), ("a", "x[0-", "name")):
    _lead = {"address": _address, "name": _name, "size": 2}
    CLUSTER.append(({"flux": {"bursting": {"leadBroker": _lead}}}, f"{LEAD}.{_field}"))
CONTAINER: Broken = [
    ({"volumes": {"v": {"path": "/x"}}}, "volumes.v"),
    ({"volumes": {"v": {"claimName": "c"}}}, "volumes.v.path"),
    ({"volumes": {"v": {"emptyDir": True, "emptyDirSizeLimit": "plenty"}}}, "volumes.v.emptyDirSizeLimit"),
    ({"ports": [70000]}, "ports[0]"),
    ({"batch": True, "launcher": True}, "launcher"),
    ({"command": "", "batch": True}, "command"),
    ({"command": "# x\n\n", "batch": True}, "command"),
    ({"commands": {"script": "x"}}, "command"),
    ({"command": "echo it's"}, "command"),
    ({"command": "echo it's", "launcher": True}, "command"),
    ({"command": 'true\necho "half', "batch": True}, "command"),
    ({"commands": {"prefix": "env 'A=b"}}, "commands.prefix"),
    ({"commands": {"pre": 'echo "half'}}, "commands.pre"),
    ({"environment": {"a b": "c"}}, "environment.a b"),
    ({"environment": {"A": "\0"}}, "environment.A"),
    ({"secrets": {"a=b": {"name": "n", "key": "k"}}}, "secrets.a=b"),
    ({"resources": {"limits": {"memory": "1Gb"}}}, "resources.limits.memory"),
    ({"secrets": {"A": {"name": "n"}}}, "secrets.A.key"),
    ({"imagePullPolicy": "sometimes"}, "imagePullPolicy"),
]
_CPUS: dict[str, Any] = {"containers": [{"command": "x", "resources": {"limits": {"cpu": 2}}}]}
OBJECTS: Broken = [
    ({"flux": {"container": {"mountPath": "/mnt/flux/view/"}}}, "spec.flux.container.mountPath"),
    ({"flux": {"container": {"mountPath": "mnt/flux"}}}, "spec.flux.container.mountPath"),
    ({"flux": {"container": {"mountPath": "//"}}}, "spec.flux.container.mountPath"),
    ({"flux": {"container": {"mountPath": "/opt/software"}}}, "spec.flux.container.mountPath"),
    ({"jobLabels": {"a b": "c"}}, "spec.jobLabels.a b"),
    ({"jobLabels": {"a": "x" * 64}}, "spec.jobLabels.a"),
    ({"jobLabels": {"UPPER.io/a": "x"}}, "spec.jobLabels.UPPER.io/a"),
    ({"network": {"headlessName": "My_Service"}}, "spec.network.headlessName"),
    ({"pod": {"labels": {"a": "b c"}}}, "spec.pod.labels.a"),
    ({"pod": {"annotations": {"a b": ""}}}, "spec.pod.annotations.a b"),
    ({"pod": {"nodeSelector": {"a": "-"}}}, "spec.pod.nodeSelector.a"),
    ({"pod": {"nodeAffinity": {"a": []}}}, "spec.pod.nodeAffinity.a"),
    ({"pod": {"nodeAffinity": {"a": ["b", "c d"]}}}, "spec.pod.nodeAffinity.a[1]"),
    ({"pod": {"serviceAccountName": "A"}}, "spec.pod.serviceAccountName"),
    ({"pod": {"runtimeClassName": "a..b"}}, "spec.pod.runtimeClassName"),
    ({"pod": {"dnsPolicy": "None"}}, "spec.pod.dnsPolicy"),
    ({"pod": {"dnsPolicy": "none"}}, "spec.pod.dnsPolicy"),
    ({"pod": {"securityContext": {"fsGroup": -1}}}, "spec.pod.securityContext.fsGroup"),
    ({"pod": {"tolerations": [{"operator": "Exists", "value": "x"}]}}, "spec.pod.tolerations[0].value"),
    ({"pod": {"tolerations": [{"value": "x"}]}}, "spec.pod.tolerations[0].key"),
    ({"pod": {"tolerations": [{"key": "a", "effect": "no"}]}}, "spec.pod.tolerations[0].effect"),
    ({"pod": {"tolerations": [{"key": "a b", "operator": "Exists"}]}}, "spec.pod.tolerations[0].key"),
    ({"pod": {"tolerations": [{"key": "a", "value": "b c"}]}}, "spec.pod.tolerations[0].value"),
    ({"pod": {"labels": {"job-name": "other"}}}, "spec.pod.labels.job-name"),
    ({"pod": {"labels": {"controller-uid": "c"}}}, "spec.pod.labels.controller-uid"),
    ({"pod": {"labels": {"job-name": "c"}}, "groups": [{"name": "g", "size": 1}]}, "spec.pod.labels.job-name"),
    ({"pod": {"resources": {"hugepages-2Mi": "4Mi"}}}, "spec.pod.resources"),
    (
        {"pod": {"securityContext": {"sysctls": [{"name": "A B", "value": "1"}]}}},
        "spec.pod.securityContext.sysctls[0].name",
    ),
    (
        {"pod": {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "/p.json"}}}},
        "spec.pod.securityContext.seccompProfile.localhostProfile",
    ),
    ({"containers": [{"runFlux": True}, {"name": "a_b"}]}, "spec.containers[1].name"),
    ({"containers": [{"runFlux": True}, {"name": "a"}, {"name": "a"}]}, "spec.containers[2].name"),
    ({"flux": {"container": {"name": "A"}}}, "spec.flux.container.name"),
    ({"flux": {"container": {"name": "c"}}}, "metadata.name"),
    ({"flux": {"container": {"image": "a b"}}}, "spec.flux.container.image"),
    ({"services": [{"name": "s", "image": "a b"}]}, "spec.services[0].image"),
    ({"containers": [{"runFlux": True}, {"name": "flux-view"}]}, "spec.containers[1].name"),
    ({"containers": [{"runFlux": True}, {"name": "9-lives", "ports": [1]}]}, "spec.containers[1].name"),
    (
        {"containers": [{"runFlux": True}, {"name": "web", "ports": [1]}], "network": {"headlessName": "web"}},
        "spec.containers[1].name",
    ),
    ({"network": {"headlessName": "9-lives"}}, "spec.network.headlessName"),
    ({"pod": {"hostPID": True}, "shareProcessNamespace": True}, "spec.pod.hostPID"),
    (
        {"pod": {"securityContext": {"sysctls": [{"name": "a", "value": "1"}] * 2}}},
        "spec.pod.securityContext.sysctls[1].name",
    ),
    ({"pod": {"nodeAffinity": {"a b": ["c"]}}, "network": {"disableAffinity": True}}, "spec.pod.nodeAffinity.a b"),
    ({"pod": {"resources": {"nvidia.com/gpu": 1}}}, "spec.pod.resources.nvidia.com/gpu"),
    ({"pod": {"resources": {"cpu": -1}}}, "spec.pod.resources.cpu"),
    ({"pod": {"resources": {"cpu": 1}}, **_CPUS}, "spec.pod.resources.cpu"),
    ({"size": 100_001}, "spec.size"),
    ({"size": 2**31 - 1, "flux": {"topology": "binomial"}}, "spec.size"),
    ({"maxSize": 100_001}, "spec.maxSize"),
    ({"groups": [{"name": "g", "maxSize": 100_001}]}, "spec.groups[0].maxSize"),
    ({"groups": [{"name": f"g{index}", "size": 100_000} for index in range(11)]}, "spec.groups"),
    ({"flux": {"bursting": {"hostlist": "h[0-999999]"}}}, "spec.flux.bursting.hostlist"),
    ({"flux": {"bursting": {"clusters": [{"name": "a", "size": 100_000}]}}}, "spec.flux.bursting.clusters"),
    ({"jobLabels": {f"a{index}": "" for index in range(5000)}}, "spec"),
    ({"flux": {"environment": {"A": "x" * 140_000}}}, "spec.flux.environment.A"),
    ({"flux": {"bursting": {"clusters": [{"name": "a", "size": 100_001}]}}}, "spec.flux.bursting.clusters[0].size"),
]
CONTAINER_OBJECTS: Broken = [
    ({"image": ""}, "image"),
    ({"resources": {"limits": {"cpu": 1}, "requests": {"cpu": "1001m"}}}, "resources.requests.cpu"),
    ({"resources": {"limits": {"memory": "-1Gi"}}}, "resources.limits.memory"),
    ({"resources": {"limits": {"gpu": 1}}}, "resources.limits.gpu"),
    ({"resources": {"limits": {"a.b/gpu": "500m"}}}, "resources.limits.a.b/gpu"),
    ({"resources": {"requests": {"a.b/gpu": 1}}}, "resources.requests.a.b/gpu"),
    ({"resources": {"limits": {"A_/gpu": 1}}}, "resources.limits.A_/gpu"),
    ({"resources": {"limits": {"hugepages-2Mi": "4Mi"}}}, "resources"),
    ({"environment": {"JOB_COMPLETION_INDEX": "0"}}, "environment.JOB_COMPLETION_INDEX"),
    ({"secrets": {"HEADRACE_POD_IP": {"name": "n", "key": "k"}}}, "secrets.HEADRACE_POD_IP"),
    ({"securityContext": {"runAsUser": -1}}, "securityContext.runAsUser"),
    ({"securityContext": {"runAsGroup": 2**31}}, "securityContext.runAsGroup"),
    ({"securityContext": {"procMount": "none"}}, "securityContext.procMount"),
    ({"securityContext": {"procMount": "Unmasked"}}, "securityContext.procMount"),
    (
        {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"add": ["CAP_SYS_ADMIN"]}}},
        "securityContext.allowPrivilegeEscalation",
    ),
    (
        {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "../p"}}},
        "securityContext.seccompProfile.localhostProfile",
    ),
    (
        {"securityContext": {"privileged": True, "allowPrivilegeEscalation": False}},
        "securityContext.allowPrivilegeEscalation",
    ),
    ({"securityContext": {"seccompProfile": {"type": "x"}}}, "securityContext.seccompProfile.type"),
    ({"securityContext": {"seccompProfile": {"type": ""}}}, "securityContext.seccompProfile.type"),
    (
        {"securityContext": {"seccompProfile": {"type": "Localhost"}}},
        "securityContext.seccompProfile.localhostProfile",
    ),
    ({"volumes": {"flux-view": {"hostPath": "/a", "path": "/b"}}}, "volumes.flux-view"),
    ({"volumes": {"c-entrypoint": {"hostPath": "/a", "path": "/b"}}}, "volumes.c-entrypoint"),
    ({"volumes": {"v": {"hostPath": "/a/../b", "path": "/b"}}}, "volumes.v.hostPath"),
    ({"volumes": {"v" * 64: {"hostPath": "/a", "path": "/b"}}}, f"volumes.{'v' * 64}"),
    ({"volumes": {"v": {"emptyDir": True, "emptyDirSizeLimit": "-1Gi"}}}, "volumes.v.emptyDirSizeLimit"),
    ({"volumes": {"v": {"hostPath": "/a", "path": "/mnt/flux"}}}, "volumes.v.path"),
    ({"volumes": {"v": {"hostPath": "/a", "path": "/b"}, "w": {"hostPath": "/c", "path": "/b"}}}, "volumes.w.path"),
    ({"volumes": {"v": {"emptyDir": True}, "w": {"emptyDir": True}}}, "volumes.w.path"),
    ({"volumes": {"v": {"configMapName": "m", "path": "/b", "items": {"k": "../f"}}}}, "volumes.v.items.k"),
    ({"volumes": {"v": {"csiDriver": "A_b", "path": "/a"}}}, "volumes.v.csiDriver"),
    ({"volumes": {"v": {"claimName": "A", "path": "/a"}}}, "volumes.v.claimName"),
    ({"secrets": {"A": {"name": "db", "key": "a b"}}}, "secrets.A.key"),
    ({"secrets": {"A": {"name": "Db", "key": "a"}}}, "secrets.A.name"),
    ({"secrets": {"A": {"name": "", "key": "a"}}}, "secrets.A.name"),
    ({"lifeCycle": {"preStopExec": "echo 'a"}}, "lifeCycle.preStopExec"),
    ({"securityContext": {"windowsOptions": {"hostProcess": True}}}, "securityContext.windowsOptions.hostProcess"),
]


def policy(*rules: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"podFailurePolicy": {"rules": list(rules)}, **fields}


def codes(**fields: Any) -> dict[str, Any]:
    return {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 42], **fields}}


CONDITION = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}


LIFECYCLE: Broken = [
    ({"suspend": "yes"}, "spec.suspend"),
    ({"managedBy": "someone"}, "spec.managedBy"),
    ({"managedBy": "a.b/" + "c" * 60}, "spec.managedBy"),
    ({"managedBy": "A_B/c"}, "spec.managedBy"),
    ({"ttlSecondsAfterFinished": -1}, "spec.ttlSecondsAfterFinished"),
    ({"startTimeoutSeconds": 0}, "spec.startTimeoutSeconds"),
    ({"autoscale": {"minSize": 0}}, "spec.autoscale.minSize"),
    ({"autoscale": {"minSize": 3}, "size": 2}, "spec.autoscale.minSize"),
    ({"autoscale": {"minSize": 1}, "size": 2, "minSize": 2}, "spec.autoscale.minSize"),
    ({"autoscale": {"idleSeconds": -1}}, "spec.autoscale.idleSeconds"),
    ({"autoscale": {"maxSize": 3}}, "spec.autoscale.maxSize"),
    (policy(codes(), pod={"restartPolicy": "OnFailure"}), "spec.podFailurePolicy"),
    (policy(*[codes()] * 21), "spec.podFailurePolicy.rules"),
    (policy({"action": "Ignore"}), "spec.podFailurePolicy.rules[0]"),
    (policy({**codes(), **CONDITION}), "spec.podFailurePolicy.rules[0]"),
    (policy({**codes(), "action": "FailIndex"}), "spec.podFailurePolicy.rules[0].action"),
    (policy(codes(operator="Is")), "spec.podFailurePolicy.rules[0].onExitCodes.operator"),
    (policy(codes(values=[])), "spec.podFailurePolicy.rules[0].onExitCodes.values"),
    (policy(codes(values=[2, 1])), "spec.podFailurePolicy.rules[0].onExitCodes.values"),
    (policy(codes(values=[1, 1])), "spec.podFailurePolicy.rules[0].onExitCodes.values"),
    (policy(codes(values=[0])), "spec.podFailurePolicy.rules[0].onExitCodes.values"),
    (policy(codes(containerName="web")), "spec.podFailurePolicy.rules[0].onExitCodes.containerName"),
    (
        policy({"action": "Ignore", "onPodConditions": [{"type": "a b"}]}),
        "spec.podFailurePolicy.rules[0].onPodConditions[0].type",
    ),
    (
        policy({"action": "Ignore", "onPodConditions": [{"type": "Ready", "status": "no"}]}),
        "spec.podFailurePolicy.rules[0].onPodConditions[0].status",
    ),
    (
        policy({"action": "Ignore", "onPodConditions": [{"type": "Ready"}] * 21}),
        "spec.podFailurePolicy.rules[0].onPodConditions",
    ),
]


def group(**fields: Any) -> dict[str, Any]:
    return {"groups": [{"name": "gpu", **fields}]}


GROUPS: Broken = [
    ({"groups": [{}]}, "spec.groups[0].name"),
    (group(name=""), "spec.groups[0].name"),
    (group(name="0"), "spec.groups[0].name"),
    (group(name="A"), "spec.groups[0].name"),
    (group(name="a" * 60), "spec.groups[0].name"),
    (group(name="services"), "spec.groups[0].name"),
    ({"groups": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}, "spec.groups[2].name"),
    (group(size=0), "spec.groups[0].size"),
    (group(size=3, maxSize=2), "spec.groups[0].maxSize"),
    (group(image="a b"), "spec.groups[0].image"),
    (group(resources={"limits": {"gpu": 1}}), "spec.groups[0].resources.limits.gpu"),
    (group(environment={"a=b": "c"}), "spec.groups[0].environment.a=b"),
    (group(pod={"dnsPolicy": "x"}), "spec.groups[0].pod.dnsPolicy"),
    (group(volumes={"v": {"path": "/x"}}), "spec.groups[0].volumes.v"),
    (group(volumes={"flux-view": {"hostPath": "/a", "path": "/x"}}), "spec.groups[0].volumes.flux-view"),
    ({**group(), "flux": {"bursting": {"hostlist": "a,b"}}}, "spec.groups"),
]


def everything() -> Broken:
    """All of them as specifications, which may lack the containers."""
    found = [*CLUSTER, *OBJECTS, *LIFECYCLE, *GROUPS]
    for fields, path in (*CONTAINER, *CONTAINER_OBJECTS):
        found.append(({"containers": [{"command": "x", **fields}]}, f"spec.containers[0].{path}"))
    return found
