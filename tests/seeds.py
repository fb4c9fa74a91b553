"""Where chance in tests comes from.

What CI says depends on the code alone, so it draws the same numbers each time. The search for faults that nobody has
seen is the soak's (`make soak`), which draws anew; `HEADRACE_SEED` gives any draw back.
"""

from __future__ import annotations

import os
import random

import sizes


def seed() -> int:
    """The seed of a test: `HEADRACE_SEED`; else a new one in a soak, and always the same otherwise. Printed."""
    chosen = int(os.environ.get("HEADRACE_SEED", str(random.randrange(1 << 30) if sizes.SOAK else 1)))
    print(f"HEADRACE_SEED={chosen}")
    return chosen
