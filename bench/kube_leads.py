"""Leads of many MiniClusters, played: each answers the operator's `watch` with a state that never changes.

    python bench/kube_leads.py KEYS

KEYS is a JSON file, a list of [address, secret key of the lead's channel, public key, size]. "all are watched" is
printed once the operator watches each. Run by kube_idle.py in the cluster's network.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import zmq


def main() -> None:
    """Bind them all, answer for ever."""
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 4000)
    poller = zmq.Poller()
    sizes = {}
    for address, secret, public, size in json.loads(Path(sys.argv[1]).read_text()):
        lead = context.socket(zmq.ROUTER)
        lead.setsockopt(zmq.CURVE_SERVER, 1)
        lead.setsockopt(zmq.CURVE_SECRETKEY, secret.encode())
        lead.setsockopt(zmq.CURVE_PUBLICKEY, public.encode())
        lead.bind(address)
        poller.register(lead, zmq.POLLIN)
        sizes[lead] = size
    watched: set[zmq.Socket[bytes]] = set()
    while True:
        for lead, _ in poller.poll():
            peer, data = lead.recv_multipart()
            request = json.loads(data)
            if lead not in watched:
                watched.add(lead)
                if len(watched) == len(sizes):
                    print("all are watched", flush=True)
            lead.send_multipart([peer, json.dumps({"id": request["id"], **_state(sizes[lead])}).encode()])


def _state(size: int) -> dict[str, object]:
    jobs = dict.fromkeys(("depend", "priority", "sched", "cleanup", "inactive"), 0)
    up = f"0-{size - 1}" if size > 1 else "0"
    return {"state": "running", "brokers_up": size, "up": up, "jobs": {**jobs, "run": 1}, "demand_nodes": 0}


if __name__ == "__main__":
    main()
