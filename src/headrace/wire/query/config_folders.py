"""Where users and sites keep configuration for commands (XDG base directories)."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


def config_folders() -> List[str]:
    """The user's folder (XDG_CONFIG_HOME), then those of the site (XDG_CONFIG_DIRS), most important first."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return [home, *(os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")]
