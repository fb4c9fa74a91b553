"""The table `[headrace.guests]`: what becomes of jobs whose user is not the owner of the instance.

`submit` is `refuse`, or `as-owner`: such jobs run, and their tasks are processes of the owner.
"""

from __future__ import annotations

from typing import Any

KEY = "headrace.guests.submit"
REFUSE, AS_OWNER = "refuse", "as-owner"
CHOICES = (REFUSE, AS_OWNER)


def submit(config: dict[str, Any]) -> str:
    """The value of the key in a configuration that `keys` has checked."""
    table = config.get("headrace", {}).get("guests", {})
    return str(table.get("submit", REFUSE))
