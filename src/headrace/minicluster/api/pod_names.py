"""The names that Kubernetes gives the pods of a cluster, in texts for brokers of one machine. Pure.

No name resolves there: the address of the machine replaces it. A name counts where a text has it as a host: as a whole
word, in a URL or before a port. Names and the address have no character that a shell, Python or JSON would quote, so a
script stays what it is.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from msgspec import structs

from .fields import MiniCluster
from .plan import Plan

# The address of all pods on one machine, as `-o torch` has it.
ADDRESS = "127.0.0.1"
# What may stand before and after a host. A slash alone begins a part of a path.
_WORD = r"(?<![^\s,;=@\"'`(\[{<|&])"
_BEFORE = rf"(?:(?<=//)|{_WORD})"
_AFTER = r"(?=[\s,;:/?#\"'`)\]}>|&\\]|\Z)"
# The job shell expands the template on each node.
_INDEX = r"(?:(\d{1,6})|\{\{node\.id\}\})"
# The texts of a plan, and where users write them.
_TEXTS = {
    "before": "commands.pre",
    "lead_before": "commands.brokerPre",
    "follower_before": "commands.workerPre",
    "initial_program": "command",
    "after": "commands.post",
}


class PodNames(NamedTuple):
    """The names of the pods `HOST-0` to `HOST-(size - 1)` behind the Service `subdomain`, "" for none.

    With an empty `namespace`, names in any namespace count. Pods that do not run here, such as those of other Jobs of
    a JobSet, have names that begin with `owner`, as these pods have.
    """

    host: str
    size: int
    subdomain: str
    namespace: str
    owner: str

    def replaced(self, text: str) -> str:
        """The text with the address for each name. A name without the Service counts only in a URL and before a port:
        elsewhere a program may compare it with its own.
        """

        def address(found: re.Match[str]) -> str:
            index = found[found.lastindex] if found.lastindex else "0"
            return ADDRESS if int(index) < self.size else found[0]

        return self._hosts().sub(address, text) if self.host in text else text

    def index_of(self, text: str) -> int | None:
        """The index of the pod that the whole text is the name of, with or without the Service."""
        found = re.fullmatch(rf"{re.escape(self.host)}-(\d{{1,6}})(?:{self._service()})?", text)
        return int(found[1]) if found and int(found[1]) < self.size else None

    def first_name_in(self, text: str, given: str) -> str:
        """The first name of a pod in the text, "" for none. Names that a script completes (`HOST-$i.SERVICE`) and those
        of pods that do not run here count, too. A name without its Service counts if `given`, the text as users wrote
        it, has it as a word, too: a pod's own name that a reference has put there does not.
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
        """What follows the host in a name: the Service, and its namespace, `svc` and the cluster's domain."""
        if not self.subdomain:
            return r"(?!)"
        # Without the rest, any last part could be the ending of a file's name.
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
    """The plan of brokers of one machine with the names replaced, and the variables and texts that still name pods."""
    environment = {name: names.replaced(value) for name, value in plan.environment.items()}
    texts = {name: names.replaced(getattr(plan, name)) for name in _TEXTS}
    still_named = {
        **{name: names.first_name_in(value, value) for name, value in environment.items()},
        **{place: names.first_name_in(texts[name], texts[name]) for name, place in _TEXTS.items()},
    }
    return structs.replace(plan, environment=environment, **texts), [
        f"{place} ({pod})" for place, pod in still_named.items() if pod
    ]
