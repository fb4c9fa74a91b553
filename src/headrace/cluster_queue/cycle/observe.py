"""Observe: update the snapshot, and assign each node to its queue."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from typing import Any

from headrace.k8s.runtime.writes import patch_of

from ..crd import Settings, WrongQueueError, settings_of
from ..model.cluster_queue import ClusterQueue
from ..model.fluxjobs import is_external
from ..model.queue_nodes import divided
from ..model.request import claims_of
from ..model.snapshot import Change, Touched, workload_of
from ..names import FLUXJOBS, FLUXQUEUES
from . import actions
from .assign import Assign
from .chronicle import Chronicle
from .context import Context
from .external import Externals
from .order import Order

Object = dict[str, Any]


class Observe:
    """The first step: applies changes to the snapshot and keeps the nodes of each queue."""

    def __init__(
        self, context: Context, order: Order, assign: Assign, externals: Externals, chronicle: Chronicle
    ) -> None:
        self._context = context
        self._order = order
        self._assign = assign
        self._externals = externals
        self._chronicle = chronicle

    def changes(self, changes: list[Change], now: float) -> Touched:
        """Apply changes; returns the objects touched by them and by calls of `touch`."""
        context, snapshot = self._context, self._context.snapshot
        touched = snapshot.apply(changes)
        for change in changes:
            if change.kind == FLUXJOBS and is_external(change.item):
                if not snapshot.is_own(change.item):
                    continue
                self._externals.observe(change.item)
                self._chronicle.see_external(change.item, change.gone, now)
            elif change.kind == FLUXJOBS and not change.gone and (uid := workload_of(change.item)):
                with self._order.contained(uid):
                    self._chronicle.see(uid, change.item, now)
        for uid, entry in context.entries.items() if touched.claims else ():
            # The review of the workload reports a volume with invalid fields.
            with suppress(Exception):
                if any(one in touched.claims for one in claims_of(entry)):
                    touched.workloads[uid] = None
        for about in context.asked_again:
            (touched.queues if about in snapshot.queues else touched.workloads)[about] = None
        context.asked_again = {}
        return touched

    def begin(self, touched: Touched, due: dict[str, None], now: int) -> dict[str, tuple[actions.Action, ...]]:
        """Begin a cycle for touched objects and workloads that are due without a change.

        Returns the status writes for FluxQueues.
        """
        self._context.touched, self._context.loads = {**touched.workloads, **due}, touched.loads
        for queue in self._context.queues.values():
            queue.queue.advance(now)
        return dict(self._nodes(touched.nodes, touched.queues, now)) if touched.queues or touched.nodes else {}

    def _nodes(
        self, nodes: Container[str], queues: Iterable[str], now: int
    ) -> Iterator[tuple[str, tuple[actions.Action, ...]]]:
        """Assign each node to its queue, and rebuild the queues whose settings have changed.

        Yields the status writes for FluxQueues.
        """
        context, snapshot = self._context, self._context.snapshot
        for name in queues:
            self._set(name)
        found = divided(snapshot.queues, snapshot.nodes)
        for name, queue in context.queues.items():
            mine, had_taints = found[name].nodes, queue.has_taints
            for node in [one for one in queue.nodes if one not in mine]:
                queue.drop_node(node)
                self._changed(name, node)
            for node in sorted((one for one in mine if one in nodes or one not in queue.nodes), key=_natural):
                try:
                    has_changed = queue.put_node(snapshot.nodes[node], now)
                except Exception as exc:
                    # A node with an unexpected form must not affect any other node.
                    context.defects.append((node, exc))
                    queue.drop_node(node)
                    has_changed = True
                if has_changed:
                    self._changed(name, node)
            if queue.has_taints != had_taints:
                self._ask_anew(name)
        context.queue_nodes = found
        for name, item in snapshot.queues.items():
            patch = patch_of(item.get("status") or {}, found[name].status())
            if patch:
                yield name, (actions.Publish(FLUXQUEUES, item, patch),)

    def _set(self, name: str) -> None:
        """Apply the current settings of a FluxQueue to its queue."""
        context, item = self._context, self._context.snapshot.queues.get(name)
        settings, queue = _settings_of(item) if item else None, context.queues.get(name)
        if queue and queue.settings != settings:
            if settings and queue.settings.of_graph == settings.of_graph:
                queue.set_settings(settings)
                context.touched.update({entry.uid: None for entry in context.entries_of(name)})
            else:
                self._close(name)
        if settings and name not in context.queues:
            context.queues[name] = ClusterQueue(settings)
            context.touched.update({entry.uid: None for entry in context.entries_of(name)})

    def _close(self, name: str) -> None:
        del self._context.queues[name]
        for entry in self._context.entries_of(name):
            self._order.forget_queue(entry)
            self._assign.forget_queue(entry)
            self._context.touched[entry.uid] = None

    def _changed(self, name: str, node: str) -> None:
        """Review the jobs affected by a changed node: jobs that no node could serve, and jobs with nodes."""
        self._context.loads[node] = None
        self._context.changed[name] = None
        for entry in self._context.entries_of(name):
            if entry.has_nodes or not entry.standing.is_ready:
                self._context.touched[entry.uid] = None

    def _ask_anew(self, name: str) -> None:
        """Have the jobs of a queue ask for nodes whose taints they tolerate, once its nodes have taints."""
        for entry in self._context.entries_of(name):
            if entry.has_nodes:
                entry.ask(None)
            self._context.touched[entry.uid] = None


def _settings_of(item: Object) -> Settings:
    """The settings of a FluxQueue. An invalid one has the defaults and no nodes (`divided`)."""
    try:
        return settings_of(item)
    except WrongQueueError:
        return Settings()


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key for natural order: node-2 before node-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
