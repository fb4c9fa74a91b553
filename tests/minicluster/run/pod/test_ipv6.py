"""Pods that have IPv6 alone: brokers, readiness and the lead's channel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pods import pods, told

from headrace.minicluster.api.pod_plan import READY_PORT

_ASK_READY = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"


@pytest.mark.skipif(not os.path.exists("/proc/net/if_inet6"), reason="this kernel has no IPv6")
def test_pods_without_ipv4_make_an_instance_that_the_operator_reaches(tmp_path: Path) -> None:
    plan = told(
        {"command": "sh -c 'until [ -e /mnt/flux/go ]; do sleep .1; done; flux run -N2 hostname'", "launcher": True}
    )
    with pods(tmp_path, ipv6=True) as made:
        made.with_channel()
        lead, follower = made.start_all(plan)
        with made.operator(lead) as operator:
            assert operator.ask("watch", until={"brokers_up": 2})["state"] == "running"
        for asker, asked in ((lead, follower), (follower, lead)):
            done = asker.run("python3", "-c", _ASK_READY, asked.address, str(READY_PORT))
            assert done.returncode == 0, done.stderr
        (lead.mount / "go").write_text("")
        assert (lead.wait(), follower.wait()) == (0, 0)
        assert sorted(lead.output()[0].split()) == ["c-0", "c-1"]
