"""`headrace mini apply|status|logs|connect|scale|delete`, and the kubectl plugin, on real pods."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubecluster import build
from patience import PATIENCE, until
from running_operator import MiniClusters
from terminal import terminal

import headrace

BIN = Path(sys.executable).parent
HEADRACE = str(BIN / "headrace")
Mini = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def mini(miniclusters: MiniClusters) -> Mini:
    """Run `headrace mini COMMAND ...` in the test's namespace."""
    where = {"KUBECONFIG": str(miniclusters.cluster.kubeconfig)}

    def run(command: str, *words: str, input: str = "") -> subprocess.CompletedProcess[str]:
        line = [HEADRACE, "mini", command, "-n", miniclusters.namespace, *words]
        return subprocess.run(
            line,
            env={**os.environ, **where},
            input=input,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    return run


def text(name: str, command: str, **spec: Any) -> str:
    full = {"containers": [{"image": "local/busybox:1", "command": command}], **spec}
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": name}}
    return yaml.safe_dump({**head, "spec": full})


def test_a_file_is_applied_and_waited_for_with_the_status_of_its_job(mini: Mini) -> None:
    claim = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "beside"}, "data": {"a": "b"}}
    both = yaml.safe_dump(claim) + "---\n" + text("ends", "sh -c 'echo to the log; exit 3'", size=2)
    done = mini("apply", "--wait", "-", input=both)
    assert done.returncode == 3, done.stderr
    told = done.stderr.splitlines()
    assert told[:2] == ["headrace-mini: ConfigMap/beside applied", "headrace-mini: MiniCluster/ends applied"]
    assert any(re.match("headrace-mini: (Pending|Starting|Running)", line) for line in told)
    assert told[-1].startswith("headrace-mini: Failed: ")
    assert "to the log" in mini("logs", "ends").stdout.splitlines()
    table = mini("status").stdout.splitlines()
    assert table[0].split() == ["NAME", "PHASE", "READY", "SIZE", "EXIT", "REASON"]
    assert table[1].split()[:2] == ["ends", "Failed"]


def test_a_cluster_that_stays_is_looked_at_scaled_connected_to_and_deleted(
    mini: Mini, miniclusters: MiniClusters
) -> None:
    applied = mini("apply", "--json", "-", input=text("stays", "", size=1, maxSize=2, interactive=True))
    assert applied.returncode == 0, applied.stderr
    cluster = json.loads(applied.stdout)
    assert cluster["status"]["phase"] == "Running" and "managedFields" not in cluster["metadata"]
    details = mini("status", "stays").stdout
    assert f"{miniclusters.namespace}/stays" in details and "JobRunning" in details
    assert json.loads(mini("status", "--json", "stays").stdout)["status"]["phase"] == "Running"

    script = "echo to stdout; echo to stderr >&2; cat; exit 5"
    ran = mini("connect", "stays", "flux", "run", "sh", "-c", script, input="typed")
    assert (ran.returncode, ran.stdout) == (5, "to stdout\ntyped"), ran.stderr
    assert ran.stderr.splitlines()[0] == "to stderr"

    for words in (["connect"], ["logs"]):
        wrong = mini(*words, "-c", "nope", "stays")
        assert wrong.returncode == 1
        assert re.search(r"pod stays-0-\w+ has no container nope \(existing: stays, flux-view\)", wrong.stderr), (
            wrong.stderr
        )

    refused = mini("scale", "stays", "3")
    assert refused.returncode == 1 and "size 3 is above the maxSize of MiniCluster stays, 2" in refused.stderr
    assert mini("scale", "stays", "2").stdout == "MiniCluster/stays scaled to 2\n"
    miniclusters.wait("stays", "brokersUp", "2")
    listed = json.loads(mini("status", "--json").stdout)
    assert [one["size"] for one in listed if one["name"] == "stays"] == [2]

    assert mini("delete", "stays").stdout == "MiniCluster/stays deleted\n"
    gone = mini("status", "stays")
    assert gone.returncode == 1 and "no MiniCluster stays in namespace" in gone.stderr


def test_a_shell_in_the_cluster_has_this_terminal(mini: Mini, miniclusters: MiniClusters) -> None:
    assert mini("apply", "--quiet", "-", input=text("shell", "", size=1, interactive=True)).returncode == 0
    where = {"KUBECONFIG": str(miniclusters.cluster.kubeconfig)}
    with terminal(HEADRACE, "mini", "connect", "-n", miniclusters.namespace, "shell", **where) as shell:
        shell.resize(33, 77)
        shell.expect("# ")
        shell.type("echo on rank $(flux getattr rank), $(stty size) in all\n")
        shell.expect("on rank 0, 33 77 in all")
        shell.resize(40, 100)
        shell.type("until stty size | grep '40 100'; do :; done; echo grown up\n")
        shell.expect("grown up\r\n")
        shell.type("exit 6\n")
        assert shell.wait() == 6


def test_the_page_of_an_instance_opens_at_a_port_here(
    mini: Mini, miniclusters: MiniClusters, image: Callable[[str], str]
) -> None:
    """In a container that has Headrace with its extra `api`: this environment, at its own place in an image that has
    Debian's Python and the libraries of one.
    """
    places = {sys.prefix, sys.base_prefix, str(Path(headrace.__file__).parents[1])} - {"/usr"}
    volumes = {f"part-{index}": {"hostPath": one, "path": one, "readOnly": True} for index, one in enumerate(places)}
    path = {"PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin"}
    containers = [{"image": image("lammps"), "command": "", "environment": path, "volumes": volumes}]
    flux = {"container": {"disable": True, "mountPath": "/opt/instance"}, "brokerConfig": "[headrace.api]\nport = 0\n"}
    applied = mini("apply", "-", input=text("web", "", size=1, interactive=True, containers=containers, flux=flux))
    assert applied.returncode == 0, applied.stderr
    until(lambda: mini("connect", "web", "headrace", "api", "url").returncode == 0)
    assert mini("connect", "web", "flux", "run", "--job-name=seen-outside", "true").returncode == 0

    where = {"KUBECONFIG": str(miniclusters.cluster.kubeconfig)}
    with terminal(HEADRACE, "mini", "connect", "-n", miniclusters.namespace, "--web", "web", **where) as shown:
        shown.expect("Open ")
        browser = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor())
        with browser.open(shown.expect("\r\n"), timeout=PATIENCE) as page:
            address, found = page.url, page.read().decode()
        assert "seen-outside" in found
        # Nothing listens at the port of the pod any more.
        assert mini("connect", "web", "flux", "module", "remove", "api").returncode == 0
        with pytest.raises(OSError):
            browser.open(address, timeout=PATIENCE)
        shown.expect(" of the pod: ")
        shown.type("\x03")
        assert shown.wait() == 0


def test_logs_are_followed_from_before_the_pod_runs(mini: Mini, miniclusters: MiniClusters) -> None:
    applied = mini("apply", "--no-wait", "--quiet", "-", input=text("talks", "sh -c 'echo one; echo two'", size=1))
    assert (applied.returncode, applied.stderr) == (0, "")
    miniclusters.wait("talks", "size", "1")
    followed = mini("logs", "--follow", "--pod", "0", "talks")
    assert followed.returncode == 0, followed.stderr
    assert [line for line in followed.stdout.splitlines() if line in ("one", "two")] == ["one", "two"]


def test_a_file_is_applied_again_over_what_scale_and_kubectl_have_set(mini: Mini, miniclusters: MiniClusters) -> None:
    first = text("again", "", size=1, maxSize=4, interactive=True)
    assert mini("apply", "--no-wait", "-", input=first).returncode == 0
    assert mini("scale", "again", "2").returncode == 0
    for size in (3, 1):
        done = mini("apply", "--no-wait", "-", input=text("again", "", size=size, maxSize=4, interactive=True))
        assert done.returncode == 0, done.stderr
        assert miniclusters.get("mc", "again")["spec"]["size"] == size
        miniclusters.kubectl("scale", "mc", "again", "--replicas=2")
    miniclusters.kubectl("apply", "-f", "-", input=text("again", "", size=4, maxSize=4, interactive=True))
    done = mini("apply", "--no-wait", "-", input=first)
    assert done.returncode == 0 and "overwrote spec.size of kubectl" in done.stderr, done.stderr

    path = f"/apis/flux-framework.org/v1alpha2/namespaces/{miniclusters.namespace}/miniclusters/again"
    body = {"spec": {"replicas": 2}}
    kind = "application/merge-patch+json"
    miniclusters.cluster.api.request("PATCH", f"{path}/scale?fieldManager=kube-controller-manager", body, kind)
    refused = mini("apply", "--no-wait", "-", input=first)
    assert refused.returncode == 1
    assert "MiniCluster/again: spec.size is set by kube-controller-manager (a HorizontalPodAuto" in refused.stderr
    assert miniclusters.get("mc", "again")["spec"]["size"] == 2
    assert mini("apply", "--no-wait", "--force", "-", input=first).returncode == 0
    assert miniclusters.get("mc", "again")["spec"]["size"] == 1


def test_what_a_former_kubectl_apply_leaves_is_told_with_the_command_that_removes_it(
    mini: Mini, miniclusters: MiniClusters
) -> None:
    before = text("former", "", size=1, interactive=True, tasks=3, flux={"optionFlags": "-c1"})
    miniclusters.kubectl("apply", "-f", "-", input=before)
    done = mini("apply", "--no-wait", "-", input=text("former", "", size=1, interactive=True))
    assert done.returncode == 0, done.stderr
    told = re.search(r"spec.flux.optionFlags, spec.tasks stay as set by .*; to remove: (kubectl patch .*)", done.stderr)
    assert told, done.stderr
    miniclusters.kubectl(*shlex.split(told[1])[1:])
    spec = miniclusters.get("mc", "former")["spec"]
    assert spec["tasks"] == 1 and "optionFlags" not in spec["flux"]
    again = mini("apply", "--no-wait", "-", input=text("former", "", size=1, interactive=True))
    assert again.returncode == 0 and "stay" not in again.stderr


def test_what_has_not_started_and_what_has_ended_is_told_in_words(mini: Mini, miniclusters: MiniClusters) -> None:
    pulls = [{"image": "local/is-not-there:1", "command": "true", "imagePullPolicy": "Never"}]
    assert mini("apply", "--no-wait", "-", input=text("pulls", "", size=1, containers=pulls)).returncode == 0
    miniclusters.reason("pulls", lambda reason: "cannot be pulled" in reason)
    for words, todo in ((["logs"], "headrace mini logs -f pulls waits for it"), (["connect"], "shows Running")):
        done = mini(*words, "pulls")
        assert done.returncode == 1 and "image local/is-not-there:1 of container pulls cannot be pulled" in done.stderr
        assert done.stderr.endswith(f"{todo}\n")
    assert mini("apply", "--wait", "-", input=text("over", "true", size=1)).returncode == 0
    done = mini("connect", "over")
    assert done.returncode == 1
    assert "MiniCluster over has ended (Finished, exit code 0), and no broker is running" in done.stderr


def test_a_deletion_returns_when_the_pods_are_gone(mini: Mini, miniclusters: MiniClusters) -> None:
    assert mini("apply", "-", input=text("goes", "", size=2, interactive=True)).returncode == 0
    assert miniclusters.pods("goes")
    done = mini("delete", "goes")
    assert (done.returncode, done.stdout) == (0, "MiniCluster/goes deleted\n"), done.stderr
    assert not miniclusters.pods("goes")


def test_a_deletion_that_was_broken_off_is_waited_for_by_the_next(mini: Mini, miniclusters: MiniClusters) -> None:
    assert mini("apply", "-", input=text("ends", "", size=1, interactive=True)).returncode == 0
    assert mini("delete", "--no-wait", "ends").returncode == 0
    done = mini("delete", "ends")
    assert not miniclusters.pods("ends")
    # Its pods may have been quicker than the second command.
    assert done.returncode == 0 or "no MiniCluster ends" in done.stderr, done.stderr


def test_who_may_only_get_waits_for_the_end_too(mini: Mini, miniclusters: MiniClusters, tmp_path: Path) -> None:
    rules = "--verb=get,create,patch"
    miniclusters.kubectl("create", "serviceaccount", "looks")
    miniclusters.kubectl("create", "role", "looks", rules, "--resource=miniclusters.flux-framework.org")
    miniclusters.kubectl(
        "create", "rolebinding", "looks", "--role=looks", f"--serviceaccount={miniclusters.namespace}:looks"
    )
    token = miniclusters.kubectl("create", "token", "looks").strip()
    config = yaml.safe_load(miniclusters.cluster.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    done = mini(
        "apply", "--kubeconfig", str(tmp_path / "kubeconfig"), "--wait", "-", input=text("eyes", "false", size=1)
    )
    assert done.returncode == 1, done.stderr
    assert "the job ended with" in done.stderr.splitlines()[-1]


def test_the_example_of_a_batch_runs_here_as_on_one_machine(mini: Mini, miniclusters: MiniClusters) -> None:
    example = (Path(__file__).parents[2] / "examples" / "batch.yaml").read_text()
    done = mini("apply", "--wait", "-", input=example.replace("cleanup: true", "cleanup: false"))
    assert done.returncode == 0, done.stderr
    lines = mini("logs", "batch").stdout.splitlines()
    assert "before the brokers start" in lines and lines[-1] == "42"
    assert sum(" counting " in line and " CD " in line for line in lines) == 1


def test_a_wrong_file_is_refused_before_anything_is_sent(mini: Mini) -> None:
    done = mini("apply", "-", input=text("wrong", "x", size=0))
    assert done.returncode == 1 and "spec.size: must be 1 or more, not 0" in done.stderr


def test_the_kubectl_plugin_is_the_same_under_its_own_name(miniclusters: MiniClusters) -> None:
    env = {"KUBECONFIG": str(miniclusters.cluster.kubeconfig), "PATH": f"{BIN}:{os.environ['PATH']}"}

    def plugin(*words: str) -> subprocess.CompletedProcess[str]:
        line = [build.program("kubernetes", "kubectl"), "minicluster", *words]
        return subprocess.run(
            line, env={**os.environ, **env}, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    done = plugin("status", "--all-namespaces")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:3] == ["NAMESPACE", "NAME", "PHASE"]
    assert plugin("delete").stderr.startswith("usage: kubectl minicluster delete")
    assert plugin("status", "nope").stderr.startswith("kubectl-minicluster: no MiniCluster nope in namespace")
