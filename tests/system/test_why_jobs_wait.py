"""Every pending job says why it waits, and most when they start, to those who look."""

from __future__ import annotations

import json
from pathlib import Path

from instance import start

# A node of two cores, and a job for each way to wait.
_JOBS = """
flux queue stop --quiet debug
flux submit -q batch -n2 -t 10m sleep 600 >id1
flux job wait-event -q $(cat id1) start
flux submit -q batch -n1 -t 10m sleep 600 >id2
flux submit -q batch -n2 -t 10m sleep 600 >id3
flux submit -q debug -n1 true >id4
flux submit -q batch --urgency=hold true >id5
flux submit -q batch --dependency=afterok:$(cat id5) true >id6
flux jobs -no '{id.f58plain} {annotations.sched.reason_pending}' >reasons
flux jobs -no '{id.f58plain} {contextual_info}' >infos
flux jobs -no '{sched.jobs_ahead} {sched.t_estimate}' $(cat id3)
for n in 1 2 3 4 5 6; do echo "$(grep $(flux job id --to=f58plain $(cat id$n)) reasons)"; done | cut -d' ' -f2-
for n in 1 2 3 4 5 6; do echo "$(grep $(flux job id --to=f58plain $(cat id$n)) infos)"; done | cut -d' ' -f2-
flux jobs -no '{contextual_info}' $(cat id3)
flux cancel --all --quiet; flux queue drain
"""
_CONFIG = """
[queues.batch]
[queues.debug]
[resource]
path = "{}"
noverify = true
"""
_R = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0", "children": {"core": "0-1"}}],
        "nodelist": ["here"],
        "starttime": 0,
        "expiration": 0,
    },
}


def test_each_way_to_wait_has_its_reason(tmp_path: Path) -> None:
    (tmp_path / "R").write_text(json.dumps(_R))
    (tmp_path / "c.toml").write_text(_CONFIG.format(tmp_path / "R"))
    done = start(f"--config-path={tmp_path}", f"flux queue start -a --quiet; {_JOBS}", cwd=str(tmp_path))
    assert done.rc == 0, done.err
    place, *lines = done.out.splitlines()
    ahead, estimate = place.split()
    assert ahead == "1" and float(estimate) > 1e9
    reasons, infos, alone = lines[:6], lines[6:12], lines[12:]
    assert len(alone) == 1 and alone[0].startswith("eta:")
    held = (tmp_path / "id5").read_text().strip()
    short = "insufficient resources: core x{} short ({} wanted, 0 free)"
    assert reasons[1:] == [
        short.format(1, 1),
        short.format(2, 2) + "; behind 1 job",
        "queue stopped",
        "held",
        f"dependency: after-success={held}",
    ]
    assert infos[1].startswith("eta:") and infos[2].startswith("eta:")
    assert infos[3:] == ["queue stopped", "held", f"depends:after-success={held}"]
