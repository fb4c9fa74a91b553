"""On a real Kubernetes: `kubectl fluxqueue` for a user of one namespace and for an administrator, what is and what was;
matches by gRPC.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from fluxion_clients import Clients, compiled
from installed import account_kubeconfig, apply
from kubecluster import build
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from patience import PATIENCE, until
from running_fluxqueue import Held, RunningFluxqueue, pod_spec, running
from running_operator import free_port

from headrace.cluster_queue.names import FLUXQUEUE
from headrace.cluster_queue.policies import order_policy
from headrace.k8s.objects.timestamps import text_of
from headrace.programs.cluster_queue.install import Install

BIN = Path(sys.executable).parent


GRPC = f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def fluxqueue(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFluxqueue]:
    state = str(tmp_path_factory.mktemp("state"))
    with running(cluster, tmp_path_factory.mktemp("fluxqueue"), "--grpc", GRPC, "--statedir", state) as started:
        yield started


class Plugin:
    """kubectl with our plugin in its PATH, for one user in one namespace."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.namespace = namespace
        self.env = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": f"{BIN}:{os.environ['PATH']}"}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.kubectl("fluxqueue", *words)

    def kubectl(self, *words: str, body: object = None) -> subprocess.CompletedProcess[str]:
        """kubectl itself, with an object as its standard input."""
        line = [build.program("kubernetes", "kubectl"), *words, "-n", self.namespace]
        return subprocess.run(
            line, env=self.env, input=json.dumps(body), capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    def __call__(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def places(self) -> dict[str, int | None]:
        """The position of each job of the list."""
        return {one["name"]: one["position"] for one in json.loads(self("list", "--json"))["jobs"]}


def user(cluster: Cluster, namespace: str, role: str, folder: Path) -> Plugin:
    """A service account with a ClusterRole of Kubernetes in one namespace alone."""
    account = f"only-{role}"
    cluster.kubectl("-n", namespace, "create", "serviceaccount", account)
    binding = ("create", "rolebinding", account, f"--clusterrole={role}", f"--serviceaccount={namespace}:{account}")
    cluster.kubectl("-n", namespace, *binding)
    (folder / role).mkdir()
    plugin = Plugin(account_kubeconfig(cluster, namespace, folder / role, account), namespace)
    # What a role has by aggregation is there moments after the install.
    until(lambda: plugin.run("list").returncode == 0)
    return plugin


@contextlib.contextmanager
def strict(cluster: Cluster) -> Iterator[None]:
    """Users keep to the order."""
    made = order_policy(Install().namespace)
    apply(cluster, *made)
    try:
        yield
    finally:
        for one in made:
            cluster.kubectl("delete", one["kind"], one["metadata"]["name"])


def test_who_would_pass_by_the_order_is_refused_where_that_is_kept(
    cluster: Cluster, fluxqueue: RunningFluxqueue, namespace: str, tmp_path: Path
) -> None:
    held = Held(cluster, namespace)
    (tmp_path / "order").mkdir()
    hers, admin = user(cluster, namespace, "admin", tmp_path / "order"), Plugin(cluster.kubeconfig, namespace)
    cpu = str(cluster.api.get("/api/v1/nodes/node-0")["status"]["allocatable"]["cpu"])
    left = {"metadata": {"name": "before", "labels": {"fluxqueue/skip": "true"}}, "spec": pod_spec("sleep 3600", "0")}
    pod = {"apiVersion": "v1", "kind": "Pod"}
    assert hers.kubectl("apply", "-f", "-", body={**pod, **left}).returncode == 0
    held.job("runs", "sleep 3600", cpu, pods=2)
    held.wait("runs-job", "Running")
    held.pod("waits", "echo", cpu)
    until(lambda: held.status("waits-pod").get("position") == 1)
    with strict(cluster):

        def refused(body: object) -> str:
            return hers.kubectl("create", "--dry-run=server", "-f", "-", body=body).stderr

        def labelled(kind: str, version: str, **labels: str) -> dict[str, Any]:
            template = {"template": {"spec": pod_spec("echo", "0")}}
            spec = pod_spec("echo", "0") if kind == "Pod" else template
            return {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "labels": labels}, "spec": spec}

        until(
            lambda: "all objects must wait their turn" in refused(labelled("Pod", "v1", **{"fluxqueue/skip": "true"}))
        )
        kueue = {"kueue.x-k8s.io/queue-name": "any"}
        assert "all objects must wait their turn" in refused(labelled("Job", "batch/v1", **kueue))
        named = labelled("Pod", "v1")
        named["spec"]["nodeName"] = "node-0"
        assert "spec.nodeName: must not be set" in refused(named)
        owned = labelled("Pod", "v1")
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
        owned["metadata"]["ownerReferences"] = [owner]
        assert "must not name a DaemonSet" in refused(owned)
        daemons = labelled("DaemonSet", "apps/v1", app="d")
        daemons["spec"]["selector"] = {"matchLabels": {"app": "d"}}
        daemons["spec"]["template"] = {
            "metadata": {"labels": {"app": "d"}},
            "spec": {**pod_spec("sleep 3600", "0"), "restartPolicy": "Always"},
        }
        assert "a DaemonSet's pods do not wait" in refused(daemons)
        managed = labelled("Job", "batch/v1")
        managed["spec"]["managedBy"] = "example.com/other"
        assert "spec.managedBy: must be kubernetes.io/job-controller or not set" in refused(managed)
        # What keeps to the order, and what was there before, is as ever; so is what the queue does.
        assert "created" in hers.kubectl("create", "-f", "-", body=labelled("Pod", "v1")).stdout
        assert hers.kubectl("annotate", "pod", "before", "seen=yes").returncode == 0
        held.delete("jobs", "runs")
        held.wait("waits-pod", "Finished")
        held.wait("x-pod", "Finished")
        # An administrator may do what she likes, and her DaemonSets have their pods.
        assert "created" in admin.kubectl("create", "-f", "-", body=daemons).stdout
        until(
            lambda: cluster.api.get(f"/apis/apps/v1/namespaces/{namespace}/daemonsets/x")["status"]["numberReady"] > 0
        )
        cluster.kubectl("delete", "daemonset", "x", "-n", namespace)
        body = labelled("Pod", "v1", **{"fluxqueue/skip": "true"})
        body["metadata"]["name"] = "hers"
        assert "created" in admin.kubectl("create", "--dry-run=server", "-f", "-", body=body).stdout


def test_what_is_held_is_let_go_by_the_queue_alone(
    cluster: Cluster, fluxqueue: RunningFluxqueue, namespace: str, tmp_path: Path
) -> None:
    held = Held(cluster, namespace)
    hers = user(cluster, namespace, "admin", tmp_path)
    cpu = str(cluster.api.get("/api/v1/nodes/node-0")["status"]["allocatable"]["cpu"])
    held.job("runs", "sleep 3600", cpu, pods=2)
    held.wait("runs-job", "Running")
    held.job("waits", "echo", cpu)
    held.pod("pod", "echo", cpu)
    until(lambda: held.status("pod-pod").get("position") == 2)

    def patched(kind: str, name: str, *patch: object) -> str:
        how = ("--type", "json" if isinstance(patch[0], list) else "merge", "-p", json.dumps(patch[0]))
        return hers.kubectl("patch", kind, name, *how).stderr

    resumed = {"spec": {"suspend": False}}
    unmarked = {"metadata": {"annotations": {"fluxqueue/held": None}}}
    for patch in (resumed, unmarked, {**resumed, **unmarked}):
        told = patched("job", "waits", patch)
        assert "the queue resumes the Job at its turn" in told, told
    assert "must keep the gate fluxqueue" in patched("pod", "pod", [{"op": "remove", "path": "/spec/schedulingGates"}])
    skip = {"fluxqueue/skip": "true"}
    told = patched("job", "waits", {"spec": {"template": {"metadata": {"labels": skip}}}})
    assert "spec.template.metadata.labels[fluxqueue/skip]: must not be a label of the pods only" in told
    named = {**pod_spec("echo", "0"), "nodeName": "node-0"}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "named"},
        "spec": {"template": {"spec": named}},
    }
    told = hers.kubectl("create", "-f", "-", body=body).stderr
    assert "spec.template.spec.nodeName: must not be set: the queue assigns nodes to pods" in told
    # All else may be changed, and so may what its user has suspended.
    assert not patched("job", "waits", {"metadata": {"annotations": {"seen": "yes"}}})
    held.job("hers", "sleep 3600", suspend=True)
    assert not patched("job", "hers", resumed)

    cluster.kubectl("-n", namespace, "create", "role", "matches", "--verb=create,patch", "--resource=fluxjobs")
    account = f"{namespace}:only-admin"
    cluster.kubectl(
        "-n", namespace, "create", "rolebinding", "matches", "--role=matches", f"--serviceaccount={account}"
    )
    spec = {"type": 10, "name": "m", "jobspec": "{}", "duration": 0, "nodes": 1, "queue": "default"}
    spec["resources"] = {"nodes": [{"name": "node-0", "amounts": {"cpu": 1000}}]}
    head = {"apiVersion": "jobs.converged-computing.org/v1alpha1", "kind": "FluxJob"}
    match = {**head, "metadata": {"name": "m", "labels": {"fluxqueue/jobid": "7"}}, "spec": spec}
    alone = "only the queue may write FluxJobs"
    until(lambda: alone in hers.kubectl("create", "-f", "-", body=match).stderr)
    assert alone in patched("fluxjob", "waits-job", {"spec": {"queue": "other"}})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "x", "controller": True}
    assert alone in patched("fluxjob", "waits-job", {"metadata": {"ownerReferences": [owner]}})
    assert not patched("fluxjob", "waits-job", {"metadata": {"annotations": {"seen": "yes"}}})
    # The queue lets go what it holds.
    held.delete("jobs", "runs")
    held.wait("waits-job", "Finished")
    held.wait("pod-pod", "Finished")


def test_the_policy_of_the_page_says_which_priority_classes_users_name(control_plane: Cluster, namespace: str) -> None:
    page = (Path(__file__).parents[2] / "docs/user/cluster-queue.md").read_text()
    (policy,) = re.findall('title="priority-classes.yaml"\n(.*?)```', page, re.DOTALL)
    control_plane.kubectl("label", "namespace", namespace, "fluxqueue/queue=default")
    control_plane.kubectl("apply", "-f", "-", input=policy)

    def refused(kind: str, version: str, spec: dict[str, Any]) -> bool:
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": namespace}, "spec": spec}
        try:
            control_plane.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(body))
        except KubeError as exc:
            assert "priorityClassName: must be low or normal here" in str(exc), str(exc)
            return True
        return False

    pod = pod_spec("echo", "0")
    first = {**pod, "priorityClassName": "system-cluster-critical"}
    until(lambda: refused("Pod", "v1", first))
    assert refused("Job", "batch/v1", {"template": {"spec": first}})
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": {**first, "restartPolicy": "Always"}}
    assert refused("Deployment", "apps/v1", {"selector": {"matchLabels": labels}, "template": template})
    assert not refused("Pod", "v1", pod) and not refused("Job", "batch/v1", {"template": {"spec": pod}})
    control_plane.kubectl("delete", "-f", "-", input=policy)


def test_a_user_of_one_namespace_lists_holds_and_releases_what_is_hers(
    cluster: Cluster, fluxqueue: RunningFluxqueue, namespace: str, tmp_path: Path
) -> None:
    cpu = str(cluster.api.get("/api/v1/nodes/node-0")["status"]["allocatable"]["cpu"])
    held = Held(cluster, namespace)
    other = f"{namespace}-other"
    cluster.kubectl("create", "namespace", other)
    until(lambda: cluster.api.get(f"/api/v1/namespaces/{other}/serviceaccounts")["items"])
    held.job("runs", "sleep 3600", cpu, pods=2)
    held.wait("runs-job", "Running")
    hers, views = user(cluster, namespace, "edit", tmp_path), user(cluster, namespace, "view", tmp_path)
    admin = Plugin(cluster.kubeconfig, namespace)
    others = Held(cluster, other)
    others.job("hidden", "echo", cpu)
    others.wait("hidden-job", "Held")
    # Objects of one second are in the order of their ids.
    held.job("mine", "echo", cpu)
    until(lambda: held.status("mine-job").get("position") == 2)
    held.pod("later", "echo", cpu)
    until(lambda: held.status("later-pod").get("position") == 3)

    done = hers.run("list")
    rows = [line.split()[:5] for line in done.stdout.splitlines()]
    assert rows[:2] == [["NAME", "KIND", "STATE", "QUEUE", "POSITION"], ["runs", "job", "Running", "default", "2"]]
    assert rows[2:] == [["mine", "job", "Held", "default", "2"], ["later", "pod", "Held", "default", "3"]]
    assert done.stderr == "1 job that you may not read is before the last of these in queue default\n"
    assert "hidden" not in done.stdout + hers("list", "--all-namespaces", "--all")
    assert json.loads(hers("list", "--json"))["unread"] == {"default": 1}
    assert "hidden" in admin("list", "-A") and "hidden" not in admin("list", "-a")
    assert admin.places() == hers.places()

    told = hers("why", "mine")
    assert "default, position 2" in told and "Queued: in queue default" in told
    assert json.loads(hers("why", "pod/later", "--json"))["position"] == 3
    refused = hers.run("why", "hidden")
    assert refused.returncode == 1
    assert refused.stderr.startswith("kubectl-fluxqueue: no object hidden waits or runs in namespace")

    assert hers("hold", "mine") == "mine is on hold: it does not start until it is released\n"
    until(lambda: hers.places() == {"runs": None, "mine": None, "later": 2})
    assert "its user put it on hold" in hers("why", "mine")
    assert json.loads(hers("release", "job/mine", "--json"))["hold"] is False
    until(lambda: hers.places() == {"runs": None, "mine": 2, "later": 3})
    assert "runs is Running: only waiting jobs" in hers.run("hold", "runs").stderr
    # Who may read alone is told by the API server what he lacks.
    denied = views.run("hold", "mine")
    assert denied.returncode == 1 and "cannot patch resource" in denied.stderr
    for command in ("nodes", "graph"):
        assert "cannot list resource" in hers.run(command).stderr

    rows = [line.split() for line in admin("nodes").splitlines()]
    assert [row[:2] for row in rows] == [["NODE", "QUEUE"], ["node-0", "default"], ["node-1", "default"]]
    assert rows[1][-1] == f"{namespace}/runs"
    free = json.loads(admin("nodes", "--json"))[0]
    assert free["free"]["cpu"] < free["has"]["cpu"] and free["jobs"] == [f"{namespace}/runs"]
    assert "  node node-0\n    cpu cpu0 " in admin("graph", "--queue", "default")
    vertices = json.loads(admin("graph", "--jgf"))["graph"]["nodes"]
    assert sorted(one["metadata"]["name"] for one in vertices if one["metadata"]["type"] == "node") == [
        "node-0",
        "node-1",
    ]
    assert admin("graph", "--json") == admin("graph", "--jgf")
    assert "no FluxQueue nope (known: default)" in admin.run("graph", "--queue", "nope").stderr
    cluster.kubectl("delete", "namespace", other, "--wait=false")


def _jobs_by_namespace(plugin: Plugin) -> dict[str, int]:
    """How many jobs of each namespace the history has; {} while it does not answer yet, as its policy is too young."""
    done = plugin.run("history", "--by", "namespace", "--json")
    if done.returncode:
        assert "the user cannot be verified" in done.stderr, done.stderr
        return {}
    return {row["namespace"]: row["jobs"] for row in json.loads(done.stdout)["rows"]}


def test_a_user_is_told_of_the_past_that_she_may_read_and_asks_in_no_other_name(
    cluster: Cluster, fluxqueue: RunningFluxqueue, namespace: str, tmp_path: Path
) -> None:
    held, other = Held(cluster, namespace), f"{namespace}-other"
    cluster.kubectl("create", "namespace", other)
    until(lambda: cluster.api.get(f"/api/v1/namespaces/{other}/serviceaccounts")["items"])
    others, admin = Held(cluster, other), Plugin(cluster.kubeconfig, namespace)
    held.pod("mine", "true")
    others.pod("hidden", "true")
    held.wait("mine-pod", "Finished")
    others.wait("hidden-pod", "Finished")
    until(lambda: {namespace, other} <= _jobs_by_namespace(admin).keys())
    hers, everything = user(cluster, namespace, "edit", tmp_path), _jobs_by_namespace(admin)

    told = json.loads(hers("history", "--since", "1h", "--by", "namespace", "--json"))
    assert [(row["namespace"], row["jobs"]) for row in told["rows"]] == [(namespace, everything[namespace])]
    unread = sum(everything.values()) - everything[namespace]
    assert (told["unread"], told["omitted"]) == (unread, 0)
    done = hers.run("history")
    assert done.stdout.splitlines()[1].split()[:2] == ["all", str(everything[namespace])]
    assert done.stderr.startswith(f"{unread} job") and "that you may not read" in done.stderr
    assert other not in done.stdout + done.stderr + str(told)
    assert admin.run("history").stderr == ""

    def asked(name: str, **about: object) -> dict[str, object]:
        head = {"apiVersion": "jobs.converged-computing.org/v1alpha1", "kind": "FluxHistory"}
        return {**head, "metadata": {"name": name}, "spec": {"user": about, "by": "namespace"}}

    me = json.loads(hers.kubectl("auth", "whoami", "-o", "json").stdout)["status"]["userInfo"]
    admins = {"username": "kubernetes-admin", "groups": ["system:masters"]}
    for forged in (admins, {**me, "groups": [*me["groups"], "system:masters"]}, {**me, "username": "root"}):
        refused = hers.kubectl("create", "-f", "-", body=asked("forged", **forged))
        assert refused.returncode == 1 and "must be the user who creates this object" in refused.stderr
    assert "spec.user.username" in hers.kubectl("create", "-f", "-", body=asked("forged")).stderr
    assert hers.kubectl("create", "-f", "-", body=asked("own", **me)).returncode == 0
    until(lambda: "status" in json.loads(hers.kubectl("get", "fluxhistory", "own", "-o", "json").stdout))
    answer = json.loads(hers.kubectl("get", "fluxhistory", "own", "-o", "json").stdout)["status"]
    assert [row["name"] for row in answer["rows"]] == [namespace]
    # The question stays as it is whoever changes it, and nobody finds those of others.
    patch = ("patch", "fluxhistory", "own", "--type=merge", f"--patch={json.dumps({'spec': {'user': admins}})}")
    assert "must not be changed" in admin.kubectl(*patch).stderr
    assert "cannot patch resource" in hers.kubectl(*patch).stderr
    assert "cannot list resource" in hers.kubectl("get", "fluxhistories").stderr
    # Those of the plugin are gone with their answers; what nobody deletes the queue may, a minute later.
    assert hers.kubectl("delete", "fluxhistory", "own").returncode == 0
    account = f"--as=system:serviceaccount:{Install().namespace}:{FLUXQUEUE}"
    assert admin.kubectl("auth", "can-i", "delete", "fluxhistories", account).stdout == "yes\n"
    until(lambda: not json.loads(admin.kubectl("get", "fluxhistories", "-A", "-o", "json").stdout)["items"])
    cluster.kubectl("delete", "namespace", other, "--wait=false")


def _is_free(admin: Plugin) -> bool:
    """Whether no pod has cores of a node, and no job a place."""
    lines = json.loads(admin("nodes", "--json"))
    return bool(lines) and all(one["free"]["cpu"] == one["has"]["cpu"] and not one["jobs"] for one in lines)


def test_a_match_by_grpc_holds_real_nodes_over_a_restart_until_it_is_cancelled(
    cluster: Cluster, fluxqueue: RunningFluxqueue, namespace: str, tmp_path: Path
) -> None:
    made, held, admin = compiled(tmp_path), Held(cluster, namespace), Plugin(cluster.kubeconfig, namespace)
    cores = int(cluster.api.get("/api/v1/nodes/node-0")["status"]["allocatable"]["cpu"])
    with grpc.insecure_channel(GRPC) as channel:
        clients = Clients(made, channel)
        assert clients.init("{}") == made.fluxion.InitResponse.INIT_DENIED
        # The pods of the test before hold their nodes until they are gone.
        until(lambda: _is_free(admin))
        found = clients.match_pods(2, id="fluence-group", cpu=cores)
        assert {one.nodeID: one.tasks for one in found.nodelist} == {"node-0": 1, "node-1": 1}
        assert clients.groups() == ("fluence-group", 1)
        with pytest.raises(grpc.RpcError, match="no room now: insufficient resources"):
            clients.match_pods(1, cpu=1)
        held.pod("waits", "echo", "1")
        held.wait("waits-pod", "Held")
        name = f"match-{found.jobID}-external"
        until(lambda: f"match-{found.jobID}" in admin("list", "-A"))
        assert f"fluxqueue-system/match-{found.jobID}" in admin("nodes")
        status = json.loads(cluster.kubectl("-n", "fluxqueue-system", "get", "fj", name, "-o", "json"))["status"]
        assert (status["state"], status["nodes"]) == ("Running", "node-[0-1]")
    fluxqueue.stop()
    fluxqueue.start()
    until(lambda: '"gRPC listens"' in fluxqueue.log.read_text().rpartition('"working"')[2])
    with grpc.insecure_channel(GRPC) as channel:
        clients = Clients(made, channel)
        assert clients.groups() == ("fluence-group", 1)
        assert held.status("waits-pod")["state"] == "Held"
        assert clients.cancel_pods(found.jobID).jobID == found.jobID
        held.wait("waits-pod", "Finished")
        one = clients.match("resources: [{type: slot, count: 1, label: a, with: [{type: core, count: 1}]}]")
        assert '"basename": "node-' in one.allocation and clients.cancel(one.jobid).status == 0
        with pytest.raises(grpc.RpcError, match=f"there is no job {one.jobid}"):
            clients.cancel(one.jobid)
        slot = {"type": "slot", "count": 2, "label": "a", "with": [{"type": "core", "count": cores}]}
        both = json.dumps({"resources": [slot], "attributes": {"system": {"duration": 20}}})
        first, later = clients.match(both), clients.match(both, reservation=True)
        assert later.reserved and later.at >= first.at + 20
        assert clients.cancel(first.jobid).status == 0
        get = ("-n", "fluxqueue-system", "get", "fj", f"match-{later.jobid}-external", "-o", "json")
        assert json.loads(cluster.kubectl(*get))["spec"]["reservation"] is True
        until(lambda: json.loads(cluster.kubectl(*get))["status"]["state"] == "Running")
        assert json.loads(cluster.kubectl(*get))["status"]["startedAt"] == text_of(later.at)
        assert clients.cancel(later.jobid).status == 0
    assert name not in cluster.kubectl("-n", "fluxqueue-system", "get", "fj", "-o", "name")
