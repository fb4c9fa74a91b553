"""`headrace-pod`: the runner of a pod of a MiniCluster or, with `cluster COMMAND...`, of somebody else's object; the
runner of a sidecar (`sidecar INDEX`); and their helpers.
"""

from __future__ import annotations

import os
import sys


def main(argv: list[str] | None = None) -> int:
    """Run the program that the arguments name; returns the exit status, or ends the process at once."""
    words = sys.argv[1:] if argv is None else argv
    if words == ["--version"]:
        from headrace import __version__

        print(f"headrace-pod {__version__}")
        return 0
    if words == ["enter"]:
        from .enter import enter

        return enter(os.environ)
    if words == ["broker"]:
        from .brokers import be_wrapped_broker

        return be_wrapped_broker()
    if words[:1] == ["sidecar"] and len(words) == 2:
        from .sidecar import run_sidecar

        return _end(run_sidecar(words[1]))
    if words and words[0] != "cluster":
        print("usage: headrace-pod [cluster [COMMAND [ARGUMENT]...] | sidecar INDEX | --version]", file=sys.stderr)
        return 2
    from headrace.engine.broker import bare_imports
    from headrace.engine.process.garbage import collect_rarely

    collect_rarely()
    bare_imports.load_small()
    from .runner import run_pod

    return _end(run_pod(words[1:] if words else None))


def _end(status: int) -> int:
    """End the process at once, since the interpreter's shutdown takes longer than the end of a container should."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
