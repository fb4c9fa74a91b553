"""Replaces the Kubernetes names of pods in texts for brokers on one machine. Pure.

Such names do not resolve on one machine, so the machine's address replaces them. A name is replaced where it is a host:
as a whole word, in a URL or before a port. Neither names nor the address contain characters that need quoting in a
shell, in Python or in JSON, so the replacement does not break a script.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from msgspec import structs

from .fields import MiniCluster
from .plan import Plan

# The address of all pods on one machine; `-o torch` uses the same.
ADDRESS = "127.0.0.1"
# The context before and after a host. A single slash before it begins a part of a path, so it does not match.
_WORD = r"(?<![^\s,;=@\"'`(\[{<|&])"
_BEFORE = rf"(?:(?<=//)|{_WORD})"
_AFTER = r"(?=[\s,;:/?#\"'`)\]}>|&\\]|\Z)"
# An index, or the template that the job shell expands on each node.
_INDEX = r"(?:(\d{1,6})|\{\{node\.id\}\})"
# The shell texts of a plan, and the fields in which users write them.
_TEXTS = {
    "before": "commands.pre",
    "lead_before": "commands.brokerPre",
    "follower_before": "commands.workerPre",
    "initial_program": "command",
    "after": "commands.post",
}


class PodNames(NamedTuple):
    """The names of the pods `HOST-0` to `HOST-(size - 1)` of the Service `subdomain` ("" for none).

    If `namespace` is empty, names in any namespace match. The names of these pods begin with `owner`, and so do those
    of related pods that do not run here, such as the pods of other Jobs of a JobSet.
    """

    host: str
    size: int
    subdomain: str
    namespace: str
    owner: str

    def replaced(self, text: str) -> str:
        """The text with each name replaced by the address.

        A name without the Service is replaced only in a URL and before a port. In other places, a program may compare
        it with its own host name.
        """

        def address(found: re.Match[str]) -> str:
            index = found[found.lastindex] if found.lastindex else "0"
            return ADDRESS if int(index) < self.size else found[0]

        return self._hosts().sub(address, text) if self.host in text else text

    def index_of(self, text: str) -> int | None:
        """The index of the pod whose name is the whole text, with or without the Service; None for other text."""
        found = re.fullmatch(rf"{re.escape(self.host)}-(\d{{1,6}})(?:{self._service()})?", text)
        return int(found[1]) if found and int(found[1]) < self.size else None

    def first_name_in(self, text: str, given: str) -> str:
        """The first name of a pod in the text; "" for none.

        This includes names that a script completes (`HOST-$i.SERVICE`) and names of pods that do not run here.

        `given` is the text as users wrote it, before references to fields of the pod were expanded. A name without its
        Service is returned only if `given` has such a name, too: otherwise it is the pod's own name, from a reference.
        """
        return self._found(text) or (self._alone(given) if self._alone(text) else "")

    def _alone(self, text: str) -> str:
        found = re.search(rf"{_WORD}{re.escape(self.host)}-\d{{1,6}}(?=[\s,;\"'`)\]}}>|&]|\Z)", text)
        return found[0] if found else ""

    def _found(self, text: str) -> str:
        if f"{self.owner}-" not in text:
            return ""
        others = rf"(?<![\w./-]){re.escape(self.owner)}-[^\s/,;\"'`]{{0,253}}{self._service()}(?![\w.-])"
        found = self._hosts().search(text) or (re.search(others, text) if self.subdomain else None)
        return found[0] if found else ""

    def _service(self) -> str:
        """A pattern for the rest of a name after the host: Service, namespace, `svc` and the cluster's domain."""
        if not self.subdomain:
            return r"(?!)"
        # Any namespace matches only if `svc` follows: otherwise it could be the extension of a file name.
        namespace = re.escape(self.namespace) if self.namespace else r"(?:default|[a-z0-9-]+(?=\.svc))"
        return rf"\.{re.escape(self.subdomain)}(?:\.{namespace}(?:\.svc(?:\.[a-z0-9-]+)*)?)?\.?"

    def _hosts(self) -> re.Pattern[str]:
        host = f"{re.escape(self.host)}-{_INDEX}"
        full_name = f"{_BEFORE}{host}{self._service()}{_AFTER}"
        return re.compile(rf"{full_name}|(?<=//){host}{_AFTER}|{_BEFORE}{host}(?=:\d)")


def of_minicluster(cluster: MiniCluster) -> PodNames:
    network = cluster.spec.network
    service = (network.headless_name if network else "") or cluster.name
    return PodNames(cluster.name, cluster.spec.size, service, cluster.namespace, cluster.name)


def on_one_machine(plan: Plan, names: PodNames) -> tuple[Plan, list[str]]:
    """The plan for one machine, with names replaced, and the variables and texts that still name pods."""
    environment = {name: names.replaced(value) for name, value in plan.environment.items()}
    texts = {name: names.replaced(getattr(plan, name)) for name in _TEXTS}
    still_named = {
        **{name: names.first_name_in(value, value) for name, value in environment.items()},
        **{place: names.first_name_in(texts[name], texts[name]) for name, place in _TEXTS.items()},
    }
    return structs.replace(plan, environment=environment, **texts), [
        f"{place} ({pod})" for place, pod in still_named.items() if pod
    ]
