"""Changes of a live MiniCluster have the effects that the user's page lists."""

from __future__ import annotations

import json
from typing import Any

from patience import until
from running_operator import MiniClusters

DURATION = "policy.jobspec.defaults.system.duration"


def change(miniclusters: MiniClusters, name: str, **spec: Any) -> None:
    miniclusters.kubectl("patch", "mc", name, "--type=merge", "-p", json.dumps({"spec": spec}))


def duration(miniclusters: MiniClusters) -> str:
    """The default duration of jobs in the configuration of the lead's broker; "" where it has none."""
    return miniclusters.flux("live", "config", "get", "--default=", DURATION).strip().strip('"')


def test_configuration_is_reloaded_and_times_count_at_once_in_the_same_pod(miniclusters: MiniClusters) -> None:
    miniclusters.apply("live", size=1, interactive=True, command="")
    miniclusters.phase("live", "Running")
    (pod,) = miniclusters.pods("live")
    assert duration(miniclusters) == ""
    table = '[policy.jobspec.defaults.system]\nduration = "1h"\n'
    change(miniclusters, "live", flux={"brokerConfig": table}, startTimeoutSeconds=600)
    until(lambda: duration(miniclusters) == "1h")
    (same,) = miniclusters.pods("live")
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    assert same["status"]["containerStatuses"][0]["restartCount"] == 0
    assert "Recreating" not in miniclusters.events("live")


def test_another_command_starts_anew_and_a_time_to_live_ends_what_is_over(miniclusters: MiniClusters) -> None:
    miniclusters.apply("anew", size=1, command="sleep 1000")
    miniclusters.phase("anew", "Running")
    (first,) = miniclusters.pods("anew")
    change(miniclusters, "anew", containers=[{"image": "local/busybox:1", "command": "echo again"}])
    status = miniclusters.phase("anew", "Finished")
    assert status["exitCode"] == 0
    # The first one may take its time to end.
    (second,) = [one for one in miniclusters.pods("anew") if one["metadata"]["uid"] != first["metadata"]["uid"]]
    assert "again\n" in miniclusters.kubectl("logs", second["metadata"]["name"], "-c", "anew")
    assert "Recreating" in miniclusters.events("anew")
    change(miniclusters, "anew", ttlSecondsAfterFinished=1)
    until(lambda: not miniclusters.get("mc")["items"])


def test_other_services_are_another_pod(miniclusters: MiniClusters) -> None:
    web = {"image": "local/busybox:1", "name": "web", "environment": {"PAGE": "one"}}
    miniclusters.apply("served", size=1, interactive=True, command="", services=[web])
    miniclusters.phase("served", "Running")
    before = miniclusters.get("pod", "served-services")
    change(miniclusters, "served", services=[{**web, "environment": {"PAGE": "two"}}])

    def replaced() -> bool:
        found = [one for one in miniclusters.get("pod")["items"] if one["metadata"]["name"] == "served-services"]
        return any(one["metadata"]["uid"] != before["metadata"]["uid"] for one in found)

    until(replaced)
    (container,) = miniclusters.get("pod", "served-services")["spec"]["containers"]
    assert {"name": "PAGE", "value": "two"} in container["env"]
