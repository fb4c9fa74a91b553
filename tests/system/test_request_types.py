"""Every method of every service refuses payloads of other types, names the field, and logs no traceback."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from instance import start

import seeds

PROGRAM = Path(__file__).parent / "request_types.py"


def test_a_payload_of_another_type_is_refused_at_the_door_of_each_service(tmp_path: Path) -> None:
    # The module `api` is loaded for its table.
    (tmp_path / "config.toml").write_text("[headrace.api]\nport = 0\n")
    seed = seeds.seed()
    rounds = int(os.environ.get("HEADRACE_FUZZ_REQUESTS", "800"))
    script = (
        f"flux module load barrier && {sys.executable} {PROGRAM} {seed} {rounds} && flux run echo alive && flux dmesg"
    )
    done = start("-s2", "-Slog-stderr-level=0", f"--config-path={tmp_path}", script, timeout=280)
    assert done.rc == 0, f"seed {seed}: {done.err[-2000:]}"
    wrong = [line for line in done.out.splitlines() if line.startswith(("NOT REFUSED", "INTERNAL", "WITHOUT FORMS"))]
    assert wrong == [], f"seed {seed}"
    assert "Traceback" not in done.out + done.err, f"seed {seed}"
    assert "alive" in done.out.splitlines()
    assert not done.left
