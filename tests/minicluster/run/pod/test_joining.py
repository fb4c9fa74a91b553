"""Pods come in any order, late, and again: names that appear late, brokers that are lost, hosts that never come."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pods import Pod, Pods, pods, told

from headrace.minicluster.api.pod_plan import READY_PORT
from headrace.minicluster.run.pod.place import PlaceError, find_place
from waiting import stays, until


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Pods]:
    with pods(tmp_path) as made:
        yield made


def online(pod: Pod) -> str:
    return pod.run("flux", "resource", "list", "-s", "free", "-no", "{nodelist}").stdout.strip()


def broker_of(pod: Pod) -> int:
    """The pid of the pod's broker, in the pod."""
    return int(pod.run("flux", "getattr", "broker.pid").stdout)


def state_of(pod: Pod) -> str:
    """The state that the pod's broker is in; "" without one."""
    asked = pod.run("python3", "-c", "import flux; print(flux.Flux().rpc('state-machine.get').get()['state'])")
    return asked.stdout.strip()


def test_a_follower_finds_its_lead_soon_after_the_lead_has_a_name(world: Pods) -> None:
    plan = told({"command": "hostname"}, tasks=0)
    follower = world.start(plan, "c-1")
    lead = world.start(plan, "c-0")
    until((follower.mount / "config/run/flux/local").exists)
    until((lead.mount / "config/run/flux/local").exists)
    named = time.time()
    world.name_pods(plan)
    assert (lead.wait(), follower.wait()) == (0, 0)
    # Those of the Flux Operator look every 15 seconds.
    assert lead.message()["times"]["run"] - named < 5


def ready(pod: Pod, seconds: float = 60) -> str:
    """What the kubelet's probe gets within so many seconds."""
    # The runner listens before it writes its files.
    until((pod.mount / "config/etc/flux/config/broker.toml").exists)
    url = f"http://127.0.0.1:{READY_PORT}/"
    asked = pod.run("python3", "-c", f"import urllib.request as u; print(u.urlopen({url!r}, timeout={seconds}).status)")
    return asked.stdout.strip() or asked.stderr.splitlines()[-1]


def test_a_pod_is_ready_while_its_broker_is_up(world: Pods) -> None:
    lead, follower = world.start_all(told({}, interactive=True))
    # Asked once: the answer comes when the broker is up.
    assert (ready(lead), ready(follower)) == ("200", "200")
    lead.signal(signal.SIGTERM)
    assert lead.wait() == 143
    # Its index of the Job is not complete: there will be another lead.
    until(lambda: "503" in ready(follower))
    follower.signal(signal.SIGTERM)
    assert follower.wait() == 143


def test_a_pod_is_ready_once_its_instance_has_run_for_a_second(world: Pods) -> None:
    """The pods of a job that is shorter do not become ready just to end."""
    (lead,) = world.start_all(told({}, 1, interactive=True))
    assert ready(lead) == "200"
    answered = time.time()
    lead.signal(signal.SIGTERM)
    lead.wait()
    assert answered - lead.message()["times"]["run"] >= 1.0


def test_a_pod_whose_broker_never_came_up_is_not_ready(world: Pods) -> None:
    plan = told({}, interactive=True)
    world.name_pods(plan)
    follower = world.start(plan, "c-1")
    until((follower.mount / "config/run/flux/local").exists)
    assert "timed out" in ready(follower, 0.5)


def test_a_pod_that_has_lost_its_broker_is_not_ready(world: Pods) -> None:
    lead, follower = world.start_all(told({}, interactive=True))
    assert ready(follower) == "200"
    lead.process.kill()
    lead.wait()
    # The follower's broker ends without its parent, and others are started in its place, which do not find one.
    until(lambda: "503" in ready(follower))


def test_a_broker_that_was_killed_is_started_again_in_its_pod(world: Pods) -> None:
    lead, follower = world.start_all(told({}, interactive=True))
    until(lambda: lead.run("flux", "run", "-N2", "true").returncode == 0)
    first = broker_of(follower)
    assert follower.run("sh", "-c", f"kill -9 {first}").returncode == 0
    until(lambda: lead.run("flux", "run", "-N2", "true").returncode == 0)
    assert broker_of(follower) != first
    assert "starting the broker again" in follower.output()[1]


def test_a_pod_that_is_replaced_joins_again(world: Pods) -> None:
    plan = told({}, interactive=True)
    lead, follower = world.start_all(plan)
    until(lambda: lead.run("flux", "run", "-N2", "true").returncode == 0)
    follower.process.kill()
    follower.wait()
    again = world.start(plan, "c-1")
    until(lambda: lead.run("flux", "run", "-N2", "true").returncode == 0)
    assert lead.run("flux", "shutdown", "--quiet").returncode == 0
    assert (lead.wait(), again.wait()) == (0, 0)


def test_followers_wait_for_a_lead_that_is_replaced(world: Pods) -> None:
    plan = told({"command": "hostname"}, tasks=0)
    lead, follower = world.start_all(told({}, interactive=True))
    until(lambda: lead.run("flux", "run", "-N2", "true").returncode == 0)
    lead.process.kill()
    lead.wait()
    again = world.start(plan, "c-0")
    assert (again.wait(), follower.wait()) == (0, 0), again.output()
    assert sorted(again.output()[0].split()) == ["c-0", "c-1"]


@pytest.mark.parametrize(
    "head",
    [{}, {"commands": {"pre": "echo before", "post": "echo after"}}],
    ids=["words", "shell-text"],
)
@pytest.mark.parametrize("strict", [False, True], ids=["", "strict"])
def test_a_follower_serves_the_next_lead_where_its_lead_was_told_to_end(
    world: Pods, head: dict[str, Any], strict: bool
) -> None:
    logging = {"quiet": True, "strict": strict}
    stays = told({"command": "sleep 1000", **head}, tasks=0, logging=logging)
    lead, follower = world.start_all(stays)
    until(lambda: lead.run("flux", "jobs", "-no", "{state}").stdout.strip() == "RUN")
    lead.signal(signal.SIGTERM)
    assert lead.wait() == 143
    assert lead.message()["killed"]
    until(lambda: "the lead was ended by a signal" in follower.output()[1])
    assert follower.process.poll() is None
    again = world.start(told({"command": "hostname", **head}, tasks=0, logging=logging), "c-0")
    assert (again.wait(), follower.wait()) == (0, 0), again.output()
    assert {"c-0", "c-1"} <= set(again.output()[0].split())


def goes(pod: Pod) -> bool:
    """Whether the broker of a pod that was told to end is on its way out, or gone."""
    try:
        return pod.run("flux", "getattr", "broker.pid").returncode != 0 or state_of(pod) == "shutdown"
    except ProcessLookupError:
        return True


def test_a_follower_that_comes_while_its_lead_goes_serves_the_next_lead(world: Pods) -> None:
    plan = told({}, interactive=True)
    lead, follower = world.start_all(plan)
    assert ready(follower) == "200"
    # The lead's broker waits for the follower's, which takes no step.
    stopped = broker_of(follower)
    assert follower.run("kill", "-STOP", str(stopped)).returncode == 0
    lead.signal(signal.SIGTERM)
    until(lambda: goes(lead))
    follower.process.kill()
    follower.wait()
    second = world.start(plan, "c-1")
    assert lead.wait() == 143
    third = world.start(plan, "c-0")
    until(lambda: third.run("flux", "run", "-N2", "true").returncode == 0)
    assert third.run("flux", "shutdown", "--quiet").returncode == 0
    assert (third.wait(), second.wait()) == (0, 0)


def test_the_next_lead_finds_no_worker_that_was_to_complete(world: Pods) -> None:
    lead, follower = world.start_all(told({}, interactive=True, flux={"completeWorkers": True}))
    assert ready(follower) == "200"
    lead.signal(signal.SIGTERM)
    assert (lead.wait(), follower.wait()) == (143, 0)


@pytest.mark.parametrize("code", [0, 3])
def test_there_is_no_next_lead_for_a_job_that_has_ended(world: Pods, code: int) -> None:
    """SIGTERM comes after the command's end, while the text after it runs."""
    commands = {"post": "touch /mnt/flux/ended; [ $(hostname) = c-1 ] || sleep 1000"}
    lead, follower = world.start_all(told({"command": f"sh -c 'exit {code}'", "commands": commands}, tasks=0))
    until((lead.mount / "ended").exists)
    lead.signal(signal.SIGTERM)
    assert (lead.wait(), follower.wait(), lead.message()["exit"]) == (code, 0, code)
    assert not lead.message().get("killed")


def test_a_follower_that_hangs_does_not_hold_up_the_end_of_its_lead(world: Pods) -> None:
    commands = {"post": "touch /mnt/flux/ended"}
    command = "sh -c 'until [ -e /mnt/flux/go ]; do sleep .1; done; exit 3'"
    # A job of both nodes would not end.
    plan = told({"command": command, "commands": commands, "launcher": True})
    lead, follower = world.start_all(replace(plan, attrs={**plan.attrs, "broker.shutdown-timeout": "1s"}))
    assert ready(follower) == "200"
    assert follower.run("kill", "-STOP", str(broker_of(follower))).returncode == 0
    (lead.mount / "go").touch()
    assert lead.wait(120) == 3
    assert (lead.mount / "ended").exists()


def test_a_lead_that_hangs_ends_when_it_is_told_to(world: Pods) -> None:
    lead, follower = world.start_all(told({}, interactive=True))
    assert ready(follower) == "200"
    assert lead.run("kill", "-STOP", str(broker_of(lead))).returncode == 0
    lead.signal(signal.SIGTERM)
    assert lead.wait(120) == 143
    # Its broker was killed, and another lead may come.
    until(lambda: "starting the broker again" in follower.output()[1], 120)


def test_a_lead_whose_broker_is_killed_says_so(world: Pods) -> None:
    lead, follower = world.start_all(told({"command": "sleep 300"}, tasks=0))
    until(lambda: lead.run("flux", "jobs", "-no", "{state}").stdout.strip() == "RUN")
    # The end of the pod may kill this shell before it has ended.
    assert lead.run("sh", "-c", f"kill -9 {broker_of(lead)}").returncode in (0, -9)
    assert lead.wait() == 137
    assert lead.message()["reason"] == "the lead's broker was ended by signal 9"
    assert lead.message()["killed"]
    follower.signal(signal.SIGTERM)
    assert follower.wait() == 143


def test_hosts_that_do_not_come_are_down_and_those_that_come_late_join(world: Pods) -> None:
    plan = told({}, size=1, maxSize=3, interactive=True)
    (lead,) = world.start_all(plan)
    until(lambda: online(lead) == "c-0")
    # R is there as soon as those that start are: pods that may come later are not waited for.
    log = lead.run("flux", "kvs", "eventlog", "get", "resource.eventlog").stdout.splitlines()
    times = {line.split()[1]: float(line.split()[0]) for line in log}
    assert times["resource-define"] - times["online"] < 0.5, log
    assert lead.run("flux", "resource", "list", "-s", "down", "-no", "{nodelist}").stdout.strip() == "c-[1-2]"
    late = world.start(plan, "c-2")
    until(lambda: online(lead) == "c-[0,2]")
    assert lead.run("flux", "run", "-N2", "hostname").stdout.split() != []
    assert lead.run("flux", "shutdown", "--quiet").returncode == 0
    assert (lead.wait(), late.wait()) == (0, 0)


def test_workers_may_complete_when_their_broker_ends(world: Pods) -> None:
    lead, follower = world.start_all(told({}, interactive=True, flux={"completeWorkers": True}))
    until(lambda: lead.run("flux", "run", "-N2", "true").returncode == 0)
    follower.run("sh", "-c", f"kill -9 {broker_of(follower)}")
    assert follower.wait() == 0


def test_a_sidecar_waits_for_the_socket_and_finds_the_instance(world: Pods) -> None:
    side = {
        "name": "side",
        "command": "flux getattr size",
        "commands": {"servicePre": "echo begins", "post": "echo ends"},
    }
    head = {"name": "main", "runFlux": True}
    plan = told(head, containers=[head, side], interactive=True, size=1, logging={}, flux={"logLevel": 0})
    sidecar = world.start(plan, "c-0", "sidecar", "1", FLUX_URI="local:///mnt/flux/config/run/flux/local")
    lead = world.start(plan, "c-0")
    out = lead.folder / "out.1"
    until(lambda: out.read_text() == "begins\n1\nends\n")
    stays(lambda: sidecar.process.poll() is None)
    sidecar.signal(signal.SIGTERM)
    assert sidecar.wait() == 0
    assert world.start(plan, "c-0", "sidecar", "0").wait() == 1
    assert (lead.folder / "err.0").read_text() == "headrace-pod: container 0 is not a sidecar; this pod has: 1\n"


def test_a_sidecar_begins_when_jobs_are_taken(world: Pods) -> None:
    """Its broker's socket answers long before, while the instance waits for its followers."""
    side = {"name": "side", "command": "echo begins; flux run -N2 -n2 echo ran"}
    plan = told(
        {"name": "main", "runFlux": True}, containers=[{"name": "main", "runFlux": True}, side], interactive=True
    )
    world.name_pods(plan)
    lead = world.start(plan, "c-0")
    world.start(plan, "c-0", "sidecar", "1", FLUX_URI="local:///mnt/flux/config/run/flux/local")
    until(lambda: lead.run("flux", "uptime").returncode == 0)
    out = lead.folder / "out.1"
    stays(lambda: (out.read_text(), (lead.folder / "err.1").read_text()) == ("", ""), 1.0)
    world.start(plan, "c-1")
    until(lambda: out.read_text() == "begins\nran\nran\n")


def test_a_sidecar_that_fails_or_is_ended_says_so(world: Pods) -> None:
    side = {"name": "side", "command": "exit 3"}
    head = {"name": "main", "runFlux": True}
    flux = {"noWaitSocket": True}
    fails = told(head, containers=[head, side], size=1, flux=flux)
    assert world.start(fails, "c-0", "sidecar", "1").wait() == 3
    goes_on = told(head, containers=[head, {**side, "command": "echo runs; exec sleep 1000"}], size=1, flux=flux)
    sidecar = world.start(goes_on, "c-0", "sidecar", "1")
    until(lambda: "runs" in (sidecar.folder / "out.1").read_text())
    sidecar.signal(signal.SIGTERM)
    assert sidecar.wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    "command",
    [
        "echo runs; sleep 1000",
        "echo runs; while :; do sleep .01; done",
        "sh -c 'trap \"\" TERM; echo runs; sleep 1000; :'",
    ],
    ids=["waits", "loops", "ignores-the-signal"],
)
def test_a_sidecar_ends_at_once_when_its_pod_does(world: Pods, command: str) -> None:
    """Kubernetes would kill it after half a minute, and the pod would have to wait for that."""
    head, flux = {"name": "main", "runFlux": True}, {"noWaitSocket": True}
    side = {"name": "side", "command": command, "commands": {"post": "echo ends"}}
    sidecar = world.start(told(head, containers=[head, side], size=1, flux=flux, logging={}), "c-0", "sidecar", "1")
    until(lambda: "runs" in (sidecar.folder / "out.1").read_text())
    sidecar.signal(signal.SIGTERM)
    assert sidecar.wait() == 128 + signal.SIGTERM
    assert (sidecar.folder / "out.1").read_text() == "runs\nends\n"


def test_who_is_not_in_the_plan_is_told() -> None:
    plan = told({}, size=2)
    with pytest.raises(PlaceError, match=r"host name, other-0, is not among the hosts c-\[0-1\]"):
        find_place(plan, {}, "other-0")
    # On the node's network the index of the Job says who it is.
    place = find_place(plan, {"JOB_COMPLETION_INDEX": "1", "HEADRACE_POD_NAMESPACE": "n"}, "node-7")
    assert (place.host, place.rank, place.namespace) == ("c-1", 1, "n")
