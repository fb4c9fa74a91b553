"""The reference of Flux's Python package, name by name: what a program can import and how it can call it.

`tests/data/bindings/reference.json` has, by module, the public names of flux-core 0.88 with their parameters (`name=`
has a default) and the members of classes. `docs/user/options.md` lists the modules that are absent. The tables below
list the names that are absent from the other modules, and the functions whose parameters differ.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
sys.path.insert(0, os.fspath(ROOT / "src/headrace/wire/compat/python"))

# Modules whose names a package has.
INNER = {"flux.job.validator.validator": "flux.job.validator", "flux.uri.uri": "flux.uri"}
RECORDED: dict[str, dict[str, Any]] = json.loads((ROOT / "tests/data/bindings/reference.json").read_text())
REFERENCE = {INNER.get(module, module): entries for module, entries in RECORDED.items()}
MANUAL = (
    (ROOT / "docs/user/options.md")
    .read_text(encoding="utf-8")
    .partition("parts of `import flux` are")[2]
    .partition("## ")[0]
)
ABSENT_MODULES = re.findall(r"`(flux\.[\w.]+)`(?! exists)", MANUAL)

ABSENT = """
flux.constraint.parser.ConstraintLexer
flux.constraint.parser.ConstraintParser.combine_like_terms
flux.constraint.parser.ConstraintParser.invalid_operator
flux.constraint.parser.ConstraintParser.p_error
flux.constraint.parser.ConstraintParser.p_expression_and
flux.constraint.parser.ConstraintParser.p_expression_or
flux.constraint.parser.ConstraintParser.p_expression_parens
flux.constraint.parser.ConstraintParser.p_expression_space
flux.constraint.parser.ConstraintParser.p_expression_token
flux.constraint.parser.ConstraintParser.p_expression_unot
flux.constraint.parser.ConstraintParser.p_quoted_token
flux.constraint.parser.ConstraintParser.p_token
flux.core.handle.Flux.add_watcher
flux.core.handle.Flux.del_watcher
flux.core.handle.Flux.reactor_enter
flux.core.handle.Flux.reactor_exit
flux.core.handle.Flux.reactor_running
flux.core.inner.Core
flux.core.watchers.CheckWatcher
flux.core.watchers.IdleWatcher
flux.core.watchers.PrepareWatcher
flux.core.watchers.fd_handler_wrapper
flux.core.watchers.signal_handler_wrapper
flux.core.watchers.timeout_handler_wrapper
flux.eventlog.EventLogEvent
flux.future.Future.fulfill_error
flux.future.Future.raise_if_handle_exception
flux.future.Future.set_flux
flux.future.continuation_callback
flux.future.init_callback
flux.hostlist.HostlistIterator
flux.idset.IDsetIterator
flux.job.Jobspec.validate_counts
flux.job.event.JobEventWatchFuture.watch_cancel
flux.job.event.JobEventWatchFuture.watch_get
flux.job.info.DependencyList
flux.job.info.InstanceInfo
flux.job.info.StatsInfo
flux.job.journal.JournalConsumer.create_event
flux.job.journal.JournalConsumer.process_response
flux.job.kvslookup.decode_special_data
flux.job.output.JobExceptionEvent
flux.job.output.JobOutputWatchLines
flux.job.output.LogEvent
flux.job.output.OutputEvent.render
flux.job.output.OutputHeaderEvent
flux.job.output.RedirectEvent
flux.job.output.Taskset
flux.job.validator.JobValidator
flux.kvs.KVSWatchFuture.watch_cancel
flux.kvs.KVSWatchFuture.watch_get
flux.kvs.KVSWrapper
flux.kvs.WatchImplementation
flux.message.MessageWatcher
flux.message.message_handler_wrapper
flux.message.msg_typestr
flux.modprobe.CodeTask
flux.modprobe.ConfigLoader
flux.modprobe.Context.enable
flux.modprobe.Context.set_alternative
flux.modprobe.Context.setenv
flux.modprobe.DependencySolver
flux.modprobe.Modprobe
flux.modprobe.Module
flux.modprobe.RankConditional
flux.modprobe.RankIDset
flux.modprobe.Task.dry_run
flux.modprobe.Task.enabled
flux.modprobe.Task.run
flux.modprobe.Task.runtask
flux.modprobe.TaskDB
flux.modprobe.default_flux_confdir
flux.modprobe.rank_conditional
flux.modprobe.run_all_rc_scripts
flux.queue.QueueResourceCounts
flux.queue.QueueResources
flux.resource.journal.ResourceJournalConsumer.create_event
flux.resource.journal.ResourceJournalConsumer.process_response
flux.resource.status.DrainInfo
flux.resource.status.ResourceStatus
flux.resource.status.ResourceStatusRPC
flux.security.SecurityFunctionWrapper
flux.uri.FluxURIResolver.plugins
flux.uri.URIResolverPlugin
flux.uri.URIResolverURI
flux.util.AltField
flux.util.Deduplicator
flux.util.FilterAction
flux.util.FilterActionSetUpdate
flux.util.FilterActionUser
flux.util.FilterTrueAction
flux.util.Tree.add
flux.util.Tree.increment
flux.util.TreedictAction
flux.util.UtilConfig
flux.util.UtilFormatter
flux.util.YesNoAction
flux.util.check_future_error
flux.util.dict_merge
flux.util.empty_outputs
flux.util.encode_payload
flux.util.encode_topic
flux.util.interruptible
flux.util.xdg_searchpath
"""
# Most of these are constructors that the bindings alone call, or have a parameter of Flux's C bindings (`handle`).
DIFFERENT = """
flux.constraint.parser.ConstraintParser.__init__
flux.core.handle.Flux.idle_watcher_create
flux.core.watchers.Watcher.__init__
flux.future.Future.__init__
flux.hostlist.Hostlist.__init__
flux.idset.IDset.__init__
flux.job.Jobspec.JobspecV1.from_batch_command
flux.job.Jobspec.JobspecV1.from_command
flux.job.Jobspec.JobspecV1.from_nest_command
flux.job.event.JobEventWatchFuture.__init__
flux.job.executor.FluxExecutorFuture.__init__
flux.job.info.JobInfoFormat.__init__
flux.job.output.JobOutputEventWatch.__init__
flux.job.output.JobOutputWatch.__init__
flux.job.output.OutputEvent.__init__
flux.kvs.KVSTxn.__init__
flux.kvs.KVSWatchFuture.__init__
flux.message.Message.__init__
flux.modprobe.Context.__init__
flux.modprobe.Task.__init__
flux.queue.QueueInfo.__init__
flux.resource.list.ResourceListRPC.__init__
flux.util.ColorAction.__init__
flux.util.OutputFormat.__init__
flux.util.OutputFormat.get_format
flux.util.OutputFormat.get_format_prepended
flux.util.OutputFormat.header
flux.util.OutputFormat.print_items
flux.util.Tree.__init__
flux.util.Tree.append
"""


def is_absent(module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in ABSENT_MODULES)


def names() -> Iterator[tuple[str, str]]:
    """(name with module and class, parameters or kind) of all that the reference has in modules that are here."""
    for module, entries in REFERENCE.items():
        if not is_absent(module):
            for name, entry in entries.items():
                yield f"{module}.{name}", entry if isinstance(entry, str) else "class"
                if not isinstance(entry, str):
                    yield from ((f"{module}.{name}.{key}", value) for key, value in entry.items() if key != "bases")


def found(name: str) -> Any:
    """What the bindings have for a name. Raises AttributeError."""
    module = next(module for module in sorted(REFERENCE, key=len, reverse=True) if name.startswith(module + "."))
    value: Any = importlib.import_module(module)
    for part in name[len(module) + 1 :].split("."):
        value = getattr(value, part)
    return value


def refused_calls(value: Any, parameters: str) -> str:
    """Why `value` cannot be called with these parameters by position and by name; "" if it can."""
    wanted = [word.strip() for word in parameters.strip("()").split(",") if word.strip()]
    if any(word.startswith("*") and word != "*" for word in wanted[:1]):
        return ""
    wanted = list(itertools.takewhile(lambda word: word == "*" or not word.startswith("*"), wanted))
    positional = [word.rstrip("=") for word in itertools.takewhile(lambda word: word != "*", wanted)]
    named = {word.rstrip("="): 0 for word in wanted if word != "*"}
    required = {word: 0 for word in wanted if word != "*" and not word.endswith("=")}
    signature = inspect.signature(value)
    this = [object()] if next(iter(signature.parameters), "") == "self" else []
    try:
        signature.bind(*this, **named)
        signature.bind(*this, **required)
        given = list(signature.bind(*this, *positional).arguments)[len(this) :]
    except TypeError as exc:
        return str(exc)
    return "" if given == positional else f"the positions are those of {', '.join(given)}"


def test_every_module_of_the_reference_is_here_or_is_called_absent() -> None:
    for module in REFERENCE:
        if not is_absent(module):
            importlib.import_module(module)


def test_every_name_of_the_reference_is_here_but_those_that_are_called_absent() -> None:
    missing = set()
    for name, kind in names():
        # Attributes of instances are seen in tests of the class.
        if kind in ("attribute", "property"):
            continue
        try:
            found(name)
        except AttributeError:
            missing.add(name)
    parents = set(ABSENT.split())
    assert {name for name in missing if name.rpartition(".")[0] not in parents} == parents


def test_every_function_takes_the_parameters_of_the_reference() -> None:
    wrong = {}
    absent = set(ABSENT.split())
    for name, kind in names():
        if kind.startswith("(") and name not in absent and name.rpartition(".")[0] not in absent:
            why = refused_calls(found(name), kind)
            if why:
                wrong[name] = f"{kind}: {why}"
    different = DIFFERENT.split()
    assert {name: why for name, why in wrong.items() if name not in different} == {}
    assert sorted(wrong) == sorted(different)
