"""Programs with `import flux` inside a real instance, for the tests of this folder."""

from __future__ import annotations

import os
import sys
import textwrap

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "system"))
from instance import start


def run(code: str, python: str = "flux python") -> list[str]:
    """The lines that `code` prints inside an instance of one broker."""
    program = "import flux, flux.job as j\nh = flux.Flux()\n" + textwrap.dedent(code)
    done = start(f"cd $TMPDIR && cat > p.py <<'EOF'\n{program}\nEOF\n{python} p.py; rm p.py")
    assert done.rc == 0, done.err
    return done.out.splitlines()
