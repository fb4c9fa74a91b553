"""Fields of a MiniCluster, seen to work from inside its pods."""

from __future__ import annotations

import json
from typing import Any

import zmq
from running_operator import MiniClusters

QUIET = {"quiet": True}


def told(text: str) -> dict[str, str]:
    """What a script has written as lines `NAME=VALUE`."""
    pairs = (line.rstrip().partition("=") for line in text.splitlines() if "=" in line)
    return {name: value for name, _, value in pairs}


def script(*lines: str) -> dict[str, Any]:
    """A container whose script writes lines; `$` is meant for the job."""
    text = "#!/bin/sh\n" + "\n".join(lines) + "\n"
    return {"image": "local/busybox:1", "launcher": True, "commands": {"script": text.replace("$", "\\$")}}


def certificate() -> str:
    """A fresh certificate, as a file gives one."""
    public, secret = (key.decode() for key in zmq.curve_keypair())
    return f'metadata\n    name = "given"\ncurve\n    public-key = "{public}"\n    secret-key = "{secret}"\n'


def test_options_of_the_instance(miniclusters: MiniClusters) -> None:
    attributes = ("tbon.connect_timeout", "tbon.topo", "tbon.maxlevel", "log-stderr-level", "tbon.zmqdebug")
    lines = [f"echo {name}=$(flux getattr {name})" for name in attributes]
    lines += [
        "echo policy=$(flux config get sched-fluxion-qmanager.queue-policy)",
        "echo cert=$(tail -n 1 /mnt/flux/config/curve/curve.cert | tr -d ' ')",
        "echo given=$GIVEN",
        "echo alias=$(flux run -N1 hostname -f)",
    ]
    given = certificate()
    miniclusters.apply(
        "options",
        size=3,
        containers=[script(*lines)],
        flux={
            "connectTimeout": "7s",
            "topology": "kary:1",
            "logLevel": 7,
            "curveCert": given,
            "environment": {"GIVEN": "by flux.environment"},
            "scheduler": {"queuePolicy": "easy", "simple": True},
            # Accepted and without effect.
            "arch": "arm",
            "mungeSecret": "munge",
        },
        network={"headlessName": "those", "disableAffinity": True},
        logging={"zeromq": True},
    )
    assert miniclusters.phase("options", "Finished")["exitCode"] == 0
    log = miniclusters.log("options")
    found = told(log)
    assert {name: found[name] for name in attributes} == {
        "tbon.connect_timeout": "7s",
        "tbon.topo": "kary:1",
        "tbon.maxlevel": "2",
        "log-stderr-level": "7",
        "tbon.zmqdebug": "1",
    }
    assert found["policy"] == "easy"
    assert found["given"] == "by flux.environment"
    assert found["cert"] == given.splitlines()[-1].replace(" ", "")
    assert found["alias"].endswith(f".those.{miniclusters.namespace}.svc.cluster.local")
    assert "overlay.debug[0]: child socket: accepted tcp://" in log
    assert miniclusters.get("service", "those")["spec"]["clusterIP"] == "None"
    assert [pod["spec"].get("affinity") for pod in miniclusters.pods("options")] == [None] * 3


def test_options_of_the_submission(miniclusters: MiniClusters) -> None:
    container = {
        "image": "local/busybox:1",
        "command": "sh -c 'echo $GIVEN task $FLUX_TASK_RANK of $FLUX_JOB_SIZE at $(pwd)'",
    }
    miniclusters.apply(
        "submits",
        size=2,
        tasks=2,
        containers=[container],
        flux={"submitCommand": "env GIVEN=given flux submit", "optionFlags": "--cwd=/tmp --label-io", "logLevel": 0},
        logging={"debug": True},
    )
    assert miniclusters.phase("submits", "Finished")["exitCode"] == 0
    lines = miniclusters.log("submits").splitlines()
    assert {line.partition(": ")[2].rstrip() for line in lines if " at " in line} == {
        "0: given task 0 of 2 at /tmp",
        "1: given task 1 of 2 at /tmp",
    }
    # `debug` submits with -vvv, which shows the job's events.
    assert any("exec.shell.start" in line for line in lines)


def test_options_of_the_pods(miniclusters: MiniClusters) -> None:
    miniclusters.kubectl("create", "serviceaccount", "given")
    name = f"other-{miniclusters.namespace}"
    kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "runc"}
    lines = (
        "echo ids=$(id -u) $(id -g) $(id -G)",
        "echo token=$(ls /var/run/secrets/kubernetes.io/serviceaccount/token)",
        "echo group=$(stat -c %g /mnt/flux)",
        "echo processes=$(ps -o comm | grep -c -e pause -e kubelet)",
        "echo sysctl=$(cat /proc/sys/net/ipv4/ip_unprivileged_port_start)",
        "echo resolves=$(grep -c cluster.local /etc/resolv.conf)",
    )
    miniclusters.kubectl("apply", "-f", "-", input=json.dumps(kind))
    try:
        miniclusters.apply(
            "pods",
            size=1,
            containers=[script(*lines)],
            jobLabels={"kueue.x-k8s.io/queue-name": "none"},
            shareProcessNamespace=True,
            deadlineSeconds=3000,
            pod={
                "labels": {"team": "x"},
                "annotations": {"note": "y"},
                "serviceAccountName": "given",
                "automountServiceAccountToken": True,
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "nodeAffinity": {"kubernetes.io/hostname": ["node-1"]},
                "tolerations": [{"key": "none", "operator": "Equal", "value": "x", "effect": "NoSchedule"}],
                "schedulerName": "default-scheduler",
                "dnsPolicy": "ClusterFirst",
                "runtimeClassName": name,
                "hostIPC": True,
                "securityContext": {
                    "runAsUser": 1234,
                    "runAsGroup": 2345,
                    "runAsNonRoot": True,
                    "fsGroup": 3456,
                    "fsGroupChangePolicy": "OnRootMismatch",
                    "supplementalGroups": [4567],
                    "seccompProfile": {"type": "RuntimeDefault"},
                    "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "1000"}],
                },
            },
            logging=QUIET,
        )
        assert miniclusters.phase("pods", "Finished")["exitCode"] == 0
    finally:
        miniclusters.kubectl("delete", "runtimeclass", name)
    found = told(miniclusters.log("pods"))
    user, group, *groups = found["ids"].split()
    assert (user, group) == ("1234", "2345") and {"3456", "4567"} <= set(groups)
    assert found["token"].endswith("/token")
    assert found["group"] == "3456"
    # The pod's own first process is seen in a shared namespace.
    assert found["processes"] == "1"
    assert found["sysctl"] == "1000"
    assert found["resolves"] == "1"
    (pod,) = miniclusters.pods("pods")
    assert pod["spec"]["nodeName"] == "node-1"
    assert pod["spec"]["serviceAccountName"] == "given"
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert pod["spec"]["runtimeClassName"] == name
    assert pod["spec"]["hostIPC"] is True
    assert pod["spec"]["tolerations"][0]["effect"] == "NoSchedule"
    assert pod["metadata"]["labels"]["team"] == "x" and pod["metadata"]["annotations"]["note"] == "y"
    job = miniclusters.get("job", "pods")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "none"
    assert job["spec"]["activeDeadlineSeconds"] == 3000


def test_options_of_the_containers(miniclusters: MiniClusters) -> None:
    runner = script(
        "echo started=$(cat /shared/started)",
        "echo user=$(id -u)",
        "echo at=$(pwd)",
        "echo path=$PYTHONPATH",
        "echo capabilities=$(grep CapBnd /proc/self/status | tr -d '\\t')",
        "echo view=$(ls -d /opt/flux/config)",
        "until [ -e /shared/beside ]; do sleep .1; done",
        "echo beside=$(cat /shared/beside)",
    )
    shared = {"shared": {"emptyDir": True, "path": "/shared"}}
    runner |= {
        "runFlux": True,
        "imagePullPolicy": "Never",
        "imagePullSecret": "none",
        "workingDir": "/work",
        "ports": [8080],
        "lifeCycle": {"postStartExec": "sh -c 'echo \"by a hook\" > /shared/started'", "preStopExec": "true"},
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]},
        },
        "resources": {"limits": {"memory": "500Mi"}, "requests": {"cpu": "50m"}},
        "volumes": shared,
    }
    # The socket is not waited for where there is none.
    beside = {
        "name": "beside",
        "image": "local/busybox:1",
        "command": "sh -c 'ls /opt/flux/config/run/flux/local > /shared/part 2>&1; mv /shared/part /shared/beside'",
        "volumes": shared,
    }
    view = {
        "name": "my-view",
        "mountPath": "/opt/flux",
        "workingDir": "/tmp",
        "pythonPath": "/opt/python",
        "imagePullSecret": "none",
        "resources": {"limits": {"cpu": "1"}},
        "securityContext": {"runAsUser": 0},
    }
    miniclusters.apply(
        "contained",
        size=1,
        containers=[runner, beside],
        flux={"container": view, "disableSocket": True, "noWaitSocket": True},
        logging=QUIET,
    )
    assert miniclusters.phase("contained", "Finished")["exitCode"] == 0
    found = told(miniclusters.log("contained"))
    assert found["started"] == "by a hook"
    assert (found["user"], found["at"]) == ("0", "/work")
    assert "/opt/python" in found["path"].split(":")
    assert found["capabilities"] == "CapBnd:0000000000000001"
    assert found["view"] == "/opt/flux/config"
    assert "No such file" in found["beside"]
    (pod,) = miniclusters.pods("contained")
    (copy,) = [one for one in pod["spec"]["initContainers"] if one["name"] == "my-view"]
    assert copy["workingDir"] == "/tmp" and copy["resources"]["limits"] == {"cpu": "1"}
    assert {one["name"] for one in pod["spec"]["imagePullSecrets"]} == {"none"}


def test_a_wrapper_runs_the_brokers(miniclusters: MiniClusters) -> None:
    """`env` with a variable, which a job of that broker then has; and followers that complete once."""
    container = {
        "image": "local/busybox:1",
        "command": "sh -c 'echo $WRAPPED'",
        "commands": {"workerPre": "echo worker"},
    }
    miniclusters.apply(
        "wrapped", size=2, tasks=2, containers=[container], flux={"wrap": "env,WRAPPED=yes", "completeWorkers": True}
    )
    assert miniclusters.phase("wrapped", "Finished")["exitCode"] == 0
    assert [line for line in miniclusters.log("wrapped").splitlines() if line == "yes"] == ["yes", "yes"]
    follower = next(pod for pod in miniclusters.pods("wrapped") if "wrapped-1-" in pod["metadata"]["name"])
    assert "worker" in miniclusters.kubectl("logs", follower["metadata"]["name"], "-c", "wrapped").splitlines()


def test_a_deadline_ends_a_minicluster(miniclusters: MiniClusters) -> None:
    miniclusters.apply("late", size=1, command="sleep 10000", deadlineSeconds=5, backoffLimit=3, logging=QUIET)
    assert "DeadlineExceeded" in json.dumps(miniclusters.phase("late", "Failed"))
    assert miniclusters.get("job", "late")["spec"]["backoffLimit"] == 3


def test_pods_take_part_in_their_node(miniclusters: MiniClusters) -> None:
    runner = script(
        "echo first=$(cat /proc/1/comm)",
        "echo capabilities=$(grep CapBnd /proc/self/status | tr -d '\\t')",
    )
    runner["securityContext"] = {"privileged": True}
    pod = {"hostPID": True, "resources": {"memory": "900Mi", "cpu": "1"}}
    miniclusters.apply("near", size=1, containers=[runner], pod=pod, logging=QUIET)
    assert miniclusters.phase("near", "Finished")["exitCode"] == 0
    found = told(miniclusters.log("near"))
    assert found["first"] not in ("pause", "headrace-pod")
    # Those of a container without privileges are a20425fb.
    assert int(found["capabilities"].rpartition(":")[2], 16) > 0xA80425FB
    assert miniclusters.pods("near")[0]["spec"]["resources"]["limits"] == {"cpu": "1", "memory": "900Mi"}


def test_a_batch_writes_into_the_folder_of_the_file(miniclusters: MiniClusters) -> None:
    """With tasks, a prefix and volumes beside it."""
    container = {
        "image": "local/busybox:1",
        "command": "echo one\nhostname",
        "batch": True,
        "logs": "/data/logs",
        "commands": {"prefix": "env PREFIX=yes", "post": "cat /data/logs/job-0.out /data/logs/job-1.out"},
        "volumes": {"data": {"emptyDir": True, "path": "/data"}},
    }
    miniclusters.apply("lines", size=2, minSize=1, maxSize=3, tasks=0, containers=[container], logging=QUIET)
    assert miniclusters.phase("lines", "Finished")["exitCode"] == 0
    one, host = miniclusters.log("lines").split()
    assert one == "one" and host in ("lines-0", "lines-1")


def test_what_a_failure_means_is_told_by_the_file(miniclusters: MiniClusters) -> None:
    rules = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"containerName": "fails", "operator": "In", "values": [3]}},
    ]
    miniclusters.apply("fails", size=1, command="sh -c 'exit 3'", podFailurePolicy={"rules": rules}, logging=QUIET)
    miniclusters.apply("ignored", size=1, command="sh -c 'exit 3'", ignoreFailure=True, logging=QUIET)
    assert miniclusters.phase("fails", "Failed")["exitCode"] == 3
    assert miniclusters.get("job", "fails")["spec"]["podFailurePolicy"] == {"rules": rules}
    assert miniclusters.phase("ignored", "Finished")["exitCode"] == 0


def test_options_of_a_group(miniclusters: MiniClusters) -> None:
    groups = [{"name": "more", "size": 1, "maxSize": 3, "environment": {"HERE": "in a group"}}]
    # A program has the environment of whoever asks for it; the group's own is that of its pods' first process.
    lines = (
        "flux exec -r 1 sh -c 'xargs -0 -n 1 < /proc/1/environ' | grep HERE",
        "echo hosts=$(flux getattr hostlist)",
    )
    miniclusters.apply("grouped", size=1, containers=[script(*lines)], groups=groups, logging=QUIET)
    assert miniclusters.phase("grouped", "Finished")["exitCode"] == 0
    assert told(miniclusters.log("grouped")) == {"HERE": "in a group", "hosts": "grouped-0,grouped-more-[0-2]"}
