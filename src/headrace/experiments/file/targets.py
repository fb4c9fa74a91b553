"""The targets of the file, and its budget."""

from __future__ import annotations

from headrace.experiments.values import Budget, Target

from .document import Value
from .section import Findings, Section, amount_of
from .templates import NAME

# The types of targets. A file without targets has one of a type's name.
TYPES = ("local", "instance", "kubernetes")
_ONLY_FOR = {"uri": "instance", "context": "kubernetes", "namespace": "kubernetes"}


def read_targets(value: Value | None, default: str, namespace: str, findings: Findings) -> tuple[Target, ...]:
    """The targets of the file, or one of the type `default` if it has none (an unknown type is the local one).

    `namespace` is that of Kubernetes for targets that have none.
    """
    if value is None:
        kind = default if default in TYPES else "local"
        return (Target(name=kind, type=kind, namespace=namespace),)  # type: ignore[arg-type]
    section = Section(value, findings)
    if not section.items:
        findings.wrong(value, "has no target: leave the key out for runs on this machine")
    return tuple(_read_target(name, item, namespace, findings) for name, item in section.items.items())


def _read_target(name: str, value: Value, namespace: str, findings: Findings) -> Target:
    section = Section(value, findings)
    kind = section.choice("type", TYPES, "local")
    if not NAME.match(name) or len(name) > 40:
        findings.wrong(value, "the name of a target has at most 40 letters, digits, '_' and '-', a letter first")
    for key, only in _ONLY_FOR.items():
        given = section.take(key)
        if given is not None and kind != only:
            findings.wrong(given, f"is for targets of the type {only}, this one is {kind}")
    target = Target(
        name=name,
        type=kind,  # type: ignore[arg-type]
        uri=section.text("uri"),
        context=section.text("context"),
        namespace=section.text("namespace", namespace),
        prices=_read_prices(section.take("price", "prices"), findings),
        up=section.text("up"),
        down=section.text("down"),
        line=value.line,
    )
    section.close()
    return target


def _read_prices(value: Value | None, findings: Findings) -> dict[str, float]:
    """Prices of a node for an hour by machine; a single number is for all machines."""
    if value is None:
        return {}
    if not isinstance(value.data, dict):
        price = amount_of(value, findings)
        return {} if price is None else {"": price}
    prices = {machine: amount_of(item, findings) for machine, item in value.data.items()}
    return {machine: price for machine, price in prices.items() if price is not None}


def read_budget(value: Value | None, targets: tuple[Target, ...], findings: Findings) -> Budget:
    section = Section(value, findings)
    budget = Budget(cost=section.amount("cost"), node_hours=section.amount("node-hours"), line=section.value.line)
    section.close()
    if budget.cost is not None and not any(target.prices for target in targets):
        findings.wrong(section.value, "needs a price in at least one target", "budget.cost")
    return budget
