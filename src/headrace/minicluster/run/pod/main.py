"""`headrace-pod`: the entry point of the programs in a pod.

Without arguments it is the runner of a MiniCluster's pod, with `cluster COMMAND...` that of a foreign object's pod, and
with `sidecar INDEX` the runner of a sidecar. The runner itself calls `enter` and `broker`.
"""

from __future__ import annotations

import os
import sys


def main(argv: list[str] | None = None) -> int:
    """Run the program that the arguments select; return the exit status, or end the process at once."""
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
    """End the process at once, because the interpreter's shutdown would delay the end of the container."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
