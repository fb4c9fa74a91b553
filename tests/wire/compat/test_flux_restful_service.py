"""The service of flux-restful-api, as it comes from PyPI, on our bindings and our broker."""

from __future__ import annotations

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bindings import run

PROGRAM = """
import json, time, warnings
warnings.simplefilter("ignore")
from fastapi.testclient import TestClient
from flux_restful.main import app
client = TestClient(app)
ask = lambda method, path, **params: client.request(method, f"/v1/{path}", params=params)

def ended(id):
    limit = time.monotonic() + 180
    while ask("GET", f"jobs/{id}").json()["state"] != "INACTIVE":
        assert time.monotonic() < limit
        time.sleep(.01)
    return id

none = ask("GET", "jobs").json()
id = ask("POST", "jobs/submit", command="sleep 1000").json()["id"]
other = ended(ask("POST", "jobs/submit", command="false", option_flags="mpi=openmpi@5").json()["id"])
details = ask("GET", "jobs", details=True).json()
first, second = details[str(id)], details[str(other)]
text = ended(ask("POST", "jobs/submit", command="echo hello").json()["id"])
told = [none, len(ask("GET", "nodes").json()["nodes"]), len(details), len(first) > 20, first["exception"]]
told += [second["returncode"], ask("GET", "jobs/search").json()["recordsTotal"]]
told += [ask("GET", f"jobs/{text}/output").json(), ask("POST", f"jobs/{id}/cancel").status_code]
told += [ask("GET", f"jobs/{ended(id)}").json()["result"], ask("POST", f"jobs/{id}/cancel").status_code]
print(json.dumps([*told, ask("GET", "jobs/1").status_code]))
"""
NO_EXCEPTION = {"occurred": False, "severity": "", "type": "", "note": ""}


def test_it_lists_details_searches_reads_output_and_cancels() -> None:
    told = json.loads(run(PROGRAM)[-1])
    assert told[:7] == [{"jobs": []}, 1, 2, True, NO_EXCEPTION, 1, 3]
    assert told[7:] == [{"Output": ["hello\n"]}, 200, "CANCELED", 400, 404]
