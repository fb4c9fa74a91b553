"""Scripts for images with a Flux of their own, run by bash around real brokers: Headrace's, installed as `flux`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from clusters import built, minicluster, pod_of

import waiting
from headrace.minicluster.api.fields import MiniCluster
from headrace.minicluster.operator.builders.own_flux import broker_script
from headrace.minicluster.operator.keys import fresh_keys

OWN = {"container": {"disable": True}}
KEYS = ""  # the folder where the Secret is
BIN = Path(sys.executable).parent


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "curve.cert").write_text(fresh_keys().curve)
    monkeypatch.setattr(sys.modules[__name__], "KEYS", str(tmp_path))


def pod(cluster: MiniCluster, tmp_path: Path, **environment: str) -> subprocess.Popen[str]:
    """Start the script of a cluster's pod, by default of the lead; its mount path lies in `tmp_path`."""
    tmp_path.mkdir(exist_ok=True)
    text = broker_script(cluster, "cluster.local").replace("/flux_operator_keys/", f"{KEYS}/")
    script = tmp_path / "wait-0.sh"
    script.write_text(text.replace("/dev/termination-log", f"{tmp_path}/message"))
    env = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "JOB_COMPLETION_INDEX": "0",
        "HEADRACE_POD_IP": "127.0.0.1",
        "HEADRACE_POD_NAMESPACE": "here",
        "HOME": str(tmp_path),
        **environment,
    }
    pipe = subprocess.PIPE
    return subprocess.Popen(["bash", script], env=env, stdout=pipe, stderr=pipe, text=True)


def lead(cluster: MiniCluster, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script of a cluster's lead to its end."""
    process = pod(cluster, tmp_path, **environment)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess([], process.returncode, out, err)


def on_this_host(
    tmp_path: Path, runner: dict[str, Any], flux: dict[str, Any] | None = None, **spec: Any
) -> MiniCluster:
    """A MiniCluster of one pod, whose host list names this machine."""
    given = {
        "container": {"disable": True, "mountPath": f"{tmp_path}/mount"},
        "bursting": {"hostlist": os.uname().nodename},
        **(flux or {}),
    }
    return minicluster({"logs": f"{tmp_path}/out", **runner}, size=1, flux=given, **spec)


def test_the_job_runs_and_its_code_is_the_pods(tmp_path: Path) -> None:
    commands = {"pre": "export WORD=before", "post": "echo after"}
    runner = {"command": "sh -c 'echo $WORD; exit 3'", "commands": commands}
    done = lead(on_this_host(tmp_path, runner, logging={"timed": True}), tmp_path)
    assert done.stdout.split() == ["before", "after"], done.stderr
    assert done.returncode == 3
    assert json.loads((tmp_path / "message").read_text()) == {"exit": 3}
    for what in ("fluxsubmit", "fluxstart"):
        assert f"FLUXTIME {what} wall time 0:" in done.stderr
    assert (tmp_path / "mount/flux-operator-complete.txt").exists()


@pytest.mark.parametrize(
    ("number", "spec", "code"),
    [
        ("KILL", {}, 256 - 9),
        ("TERM", {}, 256 - 15),
        (
            "KILL",
            {"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}},
            137,
        ),
    ],
)
def test_a_killed_job_is_not_run_again(tmp_path: Path, number: str, spec: dict[str, Any], code: int) -> None:
    """Our pod failure policy replaces pods that end with 137 or 143."""
    done = lead(on_this_host(tmp_path, {"command": f"sh -c 'kill -{number} $$'"}, **spec), tmp_path)
    assert done.returncode == code, done.stderr
    message = json.loads((tmp_path / "message").read_text())
    assert message == {"exit": {"KILL": 137, "TERM": 143}[number]}


def test_a_lead_whose_broker_was_killed_is_replaced(tmp_path: Path) -> None:
    done = lead(on_this_host(tmp_path, {"command": "sh -c 'kill -KILL $(flux getattr broker.pid)'"}), tmp_path)
    assert done.returncode == 137, done.stderr


@pytest.mark.parametrize(
    ("runner", "spec"),
    [
        ({"command": "echo one\necho two", "batch": True}, {}),
        ({"command": "sh -c 'flux run echo one; flux run echo two'", "launcher": True}, {"logging": {"strict": True}}),
        ({"command": "", "commands": {"script": "#!/bin/sh\necho one\necho two\n"}}, {"tasks": 1}),
    ],
)
def test_each_mode_runs(tmp_path: Path, runner: dict[str, Any], spec: dict[str, Any]) -> None:
    done = lead(on_this_host(tmp_path, runner, **spec), tmp_path)
    assert done.returncode == 0, done.stderr
    files = sorted((tmp_path / "out").glob("job-*.out"))
    assert (done.stdout + "".join(file.read_text() for file in files)).split()[-2:] == ["one", "two"]


def test_a_failure_that_is_to_be_ignored_is_not_the_pods(tmp_path: Path) -> None:
    assert lead(on_this_host(tmp_path, {"command": "false"}, ignoreFailure=True), tmp_path).returncode == 0


def test_the_key_is_for_its_owner_alone_and_is_not_printed(tmp_path: Path) -> None:
    done = lead(on_this_host(tmp_path, {"command": "true"}, logging={"debug": True}), tmp_path)
    key = tmp_path / "mount/config/curve/curve.cert"
    assert key.stat().st_mode & 0o777 == 0o600
    assert "secret-key" in key.read_text() and "secret-key" not in done.stdout + done.stderr


def test_users_find_the_socket_and_their_environment(tmp_path: Path) -> None:
    cluster = on_this_host(
        tmp_path, {"command": "sh -c 'echo $GREETING $fluxsocket'"}, {"environment": {"GREETING": "a b"}}
    )
    done = lead(cluster, tmp_path)
    uri = f"local://{tmp_path}/mount/config/run/flux/local"
    assert done.stdout == f"a b {uri}\n", done.stderr
    sourced = subprocess.run(
        ["bash", "-c", f". {tmp_path}/mount/flux-view.sh; echo $GREETING $fluxsocket"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert sourced.stdout == f"a b {uri}\n"


def test_brokers_find_each_other_in_the_pods_namespace(tmp_path: Path) -> None:
    lead(
        minicluster(flux={"container": {"disable": True, "mountPath": f"{tmp_path}/mount"}}),
        tmp_path,
        PATH="/usr/bin:/bin",
    )
    text = (tmp_path / "mount/config/etc/flux/config/broker.toml").read_text()
    assert 'default_connect = "tcp://%h.sample.here.svc.cluster.local:%p"\n' in text
    assert 'default_bind = "tcp://127.0.0.1:%p"\n' in text
    assert 'hosts = [ { host="sample-[0-1]" } ]\n' in text


def two_pods(tmp_path: Path, command: str) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    """A lead and a follower, which find each other on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    started = []
    for index in range(2):
        mount = f"{tmp_path}/{index}"
        config = f"""
[bootstrap]
curve_cert = "{mount}/config/curve/curve.cert"
hosts = [{{ host = "sample-0", bind = "{address}", connect = "{address}" }}, {{ host = "sample-1" }}]
[resource]
path = "{mount}/config/etc/flux/system/R"
"""
        flux = {"container": {"disable": True, "mountPath": mount}, "brokerConfig": config}
        cluster = minicluster({"logs": f"{mount}/out", "command": command}, tasks=2, flux=flux)
        names = {"JOB_COMPLETION_INDEX": str(index), "FLUX_FAKE_HOSTNAME": f"sample-{index}"}
        started.append(pod(cluster, tmp_path / str(index), **names))
    return started[0], started[1]


def test_a_follower_ends_well_when_the_lead_ends_whatever_the_job_returned(tmp_path: Path) -> None:
    first, second = two_pods(tmp_path, "sh -c 'echo $FLUX_TASK_RANK; exit 4'")
    out, err = first.communicate(timeout=60)
    assert sorted(out.split()) == ["0", "1"], err
    assert first.returncode == 4
    second.communicate(timeout=60)
    assert second.returncode == 0


def test_a_pod_that_is_to_end_ends_its_broker_and_says_so(tmp_path: Path) -> None:
    first, second = two_pods(tmp_path, "sleep 100")
    waiting.until((tmp_path / "0/config/run/flux/local").exists)
    for process in (second, first):
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 143


def test_a_broker_configuration_of_the_file_is_taken_as_it_is(tmp_path: Path) -> None:
    given = "[access]\nallow-guest-user = true\n# costs $5\n"
    cluster = on_this_host(tmp_path, {}, {"brokerConfig": given})
    lead(cluster, tmp_path, PATH="/usr/bin:/bin")
    assert (tmp_path / "mount/config/etc/flux/config/broker.toml").read_text() == given


def test_a_pod_has_no_view_and_is_started_by_bash() -> None:
    cluster = minicluster(
        containers=[
            {"image": "with-flux", "command": "hostname", "runFlux": True},
            {"image": "debian", "name": "side", "command": "sleep 9"},
            {"image": "nginx", "name": "web", "noWrapEntrypoint": True},
        ],
        flux=OWN,
    )
    pod = pod_of(cluster)
    assert "initContainers" not in pod_of(minicluster(flux=OWN))
    commands = [one.get("command") for one in (*pod["containers"], *pod["initContainers"])]
    assert commands == [["/bin/bash", "/flux_operator/wait-0.sh"], ["/bin/bash", "/flux_operator/start-1.sh"], None]
    assert "readinessProbe" not in pod["containers"][0]
    volume = next(one["configMap"] for one in pod["volumes"] if "configMap" in one)
    assert {item["key"]: item["path"] for item in volume["items"]} == {"wait-0": "wait-0.sh", "start-1": "start-1.sh"}
    assert set(built(cluster)["ConfigMap/sample-entrypoint"]["data"]) == {"wait-0", "start-1"}


@pytest.mark.parametrize(("command", "status"), [("true", 143), ("exit 5", 5), ("exec sleep 1000", 143)])
def test_a_container_beside_stays_after_success_and_ends_when_told(tmp_path: Path, command: str, status: int) -> None:
    side = {"image": "debian", "name": "side", "command": f"echo runs; {command}"}
    flux = {**OWN, "noWaitSocket": True}
    cluster = minicluster(containers=[{"image": "x", "command": "true", "runFlux": True}, side], flux=flux)
    script = tmp_path / "start-1.sh"
    script.write_text(built(cluster)["ConfigMap/sample-entrypoint"]["data"]["start-1"])
    process = subprocess.Popen(["bash", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "runs\n"
    if status == 143:
        waiting.stays(lambda: process.poll() is None)
        process.terminate()
    assert process.wait(10) == status
