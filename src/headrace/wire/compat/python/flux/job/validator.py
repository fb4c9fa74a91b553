"""`flux.job.validator`: the base of a site's validators, which check jobs at submission.

A validator is the class `Validator` of a file (`[ingest.validator] plugins` of flux-config-ingest(5)).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod

import flux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, List, Optional, Tuple


class ValidatorResult:
    """The results of all validators on one job: `errnum` is the highest one, 0 if the job is accepted."""

    def __init__(self) -> None:
        self.errnum = 0
        self.errmsgs: List[str] = []

    def __str__(self) -> str:
        """The JSON object `{"errnum": int, "errstr"?: str}`, on one line."""
        return json.dumps({"errnum": self.errnum, **({"errstr": self.errmsg} if self.errmsgs else {})})

    def push_result(self, errnum: int, errmsg: Optional[str] = None) -> None:
        """Add the result of one validator."""
        self.errnum = max(self.errnum, errnum)
        if errmsg and errmsg not in self.errmsgs:
            self.errmsgs.append(errmsg)

    @property
    def errmsg(self) -> str:
        return ", ".join(self.errmsgs)

    @property
    def success(self) -> bool:
        return self.errnum == 0


class ValidatorJobInfo:
    """A submitted job: `jobspec` (RFC 14, as a dict), `userid`, `flags` and `urgency`.

    Raises ValueError if one of these keys is missing in `jobinfo`.
    """

    required_keys = frozenset(("jobspec", "userid", "flags", "urgency"))

    def __init__(self, jobinfo: Dict[str, Any]) -> None:
        missing = self.required_keys - jobinfo.keys()
        if missing:
            raise ValueError(f"a job without {', '.join(sorted(missing))}")
        self.jobinfo = jobinfo

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["jobinfo"][name]
        except KeyError:
            raise AttributeError(name) from None


class ValidatorPlugin(ABC):
    """The base class of `Validator`, which may add its own options to `parser`, an ArgumentParser."""

    def __init__(self, parser: Any) -> None:  # noqa: B027 (a plugin need not have options)
        pass

    @property
    def flux(self) -> Any:
        """The plugin's own handle, opened on first use."""
        if "_flux" not in self.__dict__:
            self._flux = flux.Flux()
        return self._flux

    def configure(self, args: Namespace) -> None:  # noqa: B027 (nor use them)
        """Called once, with the options of `[ingest.validator] args`."""

    @abstractmethod
    def validate(self, job: ValidatorJobInfo) -> Optional[Tuple[int, Optional[str]]]:
        """Accept a job by returning None or (0, None).

        Reject it by returning (errnum, text), or by raising ValueError, TypeError or OSError with the text.
        """
