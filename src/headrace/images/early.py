"""The modules that the start of an instance imports, which a view stores uncompressed.

The list is `early_modules.txt`, so that views are the same wherever they are built; `python -m headrace.images.early`
writes it, and `tests/images/test_view.py` fails when it is outdated.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

LIST = Path(__file__).with_name("early_modules.txt")
# The start of a pod's lead and followers, as one instance on this machine.
START = ("start", "--test-size=2", "flux", "run", "-N2", "true")
# Only the lead imports these modules, in a separate process: compression saves more space than its two milliseconds
# cost.
COMPRESSED = ("headrace.sched.graph", "headrace.sched.queueing")


def names() -> frozenset[str]:
    return frozenset(LIST.read_text().split())


def imported(command: Sequence[str], environ: dict[str, str]) -> set[str]:
    """The modules that a Python program and its forks import; `command` has the program's words."""
    program, *rest = command
    done = subprocess.run([program, "-v", *rest], env=environ, capture_output=True, text=True, timeout=120, check=False)
    # Every import writes a line to standard error, but lines of several processes may be joined.
    return set(re.findall(r"import '([\w.]+)' #", done.stderr))


def main() -> int:
    # As in a view, without the imports of site-packages at every start.
    python = [sys.executable, "-I", "-S", "-c"]
    path = f"import sys; sys.path[:] = {sys.path!r}; "
    code = path + "from headrace.cli.main import flux; sys.argv[0] = 'flux'; flux()"
    runner = (
        path
        + "from headrace.engine.broker import bare_imports; bare_imports.load_small(); "
        + "from headrace.minicluster.run.pod import brokers, ready, runner"
    )
    # Commands inside the instance write their imports to the same standard error.
    environ = {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        environ["TMPDIR"] = folder
        found = imported([*python, code, *START], environ)
        found |= imported([*python, runner], environ)
        found |= imported([*python, code, "run", "--help"], environ)
    packages = {"headrace", "zmq", "msgspec", *sys.stdlib_module_names}
    kept = {name for name in found if name.partition(".")[0] in packages and not name.startswith(COMPRESSED)}
    LIST.write_text("".join(f"{name}\n" for name in sorted(kept)))
    print(f"{LIST}: {len(kept)} modules")
    return 0


if __name__ == "__main__":
    sys.exit(main())
