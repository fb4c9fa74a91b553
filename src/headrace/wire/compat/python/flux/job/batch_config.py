"""`flux.job.BatchConfig`: an instance's configuration, assembled as by `flux batch --conf`."""

from __future__ import annotations

from typing import Any, Dict, Optional

from flux.util import get_treedict
from headrace.wire.query import conf_option


class BatchConfig:
    """`config` is the configuration as a dict, None before the first `update`."""

    def __init__(self) -> None:
        self.config: Optional[Dict[str, Any]] = None

    def update(self, val: str) -> BatchConfig:
        """Merge a `KEY=VALUE`, a TOML or JSON file, or TOML or JSON text; a later value overrides.

        Raises ValueError, OSError.
        """
        self.config = conf_option.merge([val], self.config)
        return self

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a dotted key."""
        return get_treedict(self.config or {}, key, default)
