"""`flux R`: creates, combines and shows resource sets (RFC 20) without an instance.

Sets are read from standard input, one JSON object after another, and written to standard output.
"""

from __future__ import annotations

import json
import os
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command, dispatch
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.rset import ResourceSet, RsetError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List

    from headrace.cli.common.getopts import Options

PREFIX = "flux-R: "

_TABLE = {
    "encode": ("Create R for ranks, cores, GPUs and hosts", None),
    "append": ("Combine several sets of different ranks into one", None),
    "diff": ("Subtract the other sets from the first", None),
    "intersect": ("Keep the resources that are in every set", None),
    "remap": ("Renumber ranks and cores from 0", None),
    "rerank": ("Set the rank of each host to its position in HOSTLIST", None),
    "decode": ("Print R from standard input, or a part of it", None),
    "verify": ("Fail unless the second set has all resources of the first", None),
    "set-property": ("Add properties to ranks of an R on standard input", None),
    "parse-config": ("Write the R that a configuration file describes", None),
}
_ENCODE = Command(
    "flux-R encode",
    "[OPTIONS]",
    _TABLE["encode"][0],
    (
        ("r", "ranks", "IDS", "The ranks (default: one for each host, or 0)"),
        ("c", "cores", "IDS", "The cores of each rank (default: 0, or none with --gpus)"),
        ("g", "gpus", "IDS", "The GPUs of each rank (default: none)"),
        ("H", "hosts", "HOSTS", "The hosts of the ranks, in the order of the ranks"),
        ("p", "property", "NAME:RANKS", "Set a property on these ranks, or on all with NAME alone"),
        ("x", "xml", "FILE", "Read cores and GPUs from an hwloc topology in XML"),
        ("l", "local", "", "Use the cores and GPUs that a broker finds on this machine"),
    ),
)
_DECODE = Command(
    "flux-R decode",
    "[OPTIONS]",
    _TABLE["decode"][0],
    (
        ("s", "short", "", "Print the short form: rank[0-1]/core[0-3]"),
        ("n", "nodelist", "", "Print the hosts"),
        ("r", "ranks", "", "Print the ranks"),
        ("c", "count", "TYPE", "Print the number of resources of TYPE: node, core or gpu"),
        ("i", "include", "RANKS", "Keep only these ranks"),
        ("x", "exclude", "RANKS", "Leave out these ranks"),
        ("p", "properties", "PROPERTIES", "Keep only ranks with all of these properties"),
    ),
)
_PLAIN = {
    name: Command(f"flux-R {name}", "", _TABLE[name][0]) for name in ("append", "diff", "intersect", "remap", "verify")
}
_RERANK = Command("flux-R rerank", "HOSTLIST", _TABLE["rerank"][0])
_SET_PROPERTY = Command("flux-R set-property", "NAME:TARGETS...", "Add properties to ranks of an R on standard input")
_PARSE_CONFIG = Command("flux-R parse-config", "PATH", "Write the R that a configuration file describes")


def main(argv: List[str]) -> int:
    name, rest = dispatch("flux-R", argv, _TABLE)
    try:
        return _ACTIONS[name](rest)
    except RsetError as exc:
        raise CommandError(str(exc)) from None


def _read(least: int = 1) -> List[ResourceSet]:
    """All sets on standard input.

    Raises CommandError if there are fewer than `least`, or one cannot be read.
    """
    text = sys.stdin.read()
    found: List[ResourceSet] = []
    decoder = json.JSONDecoder()
    pos = 0
    while True:
        while pos < len(text) and text[pos].isspace():
            pos += 1
        if pos == len(text):
            break
        try:
            obj, pos = decoder.raw_decode(text, pos)
        except ValueError as exc:
            raise CommandError(f"failed to read R from standard input: {exc}") from None
        found.append(ResourceSet.from_obj(obj))
    if len(found) < least:
        raise CommandError(
            "Unable to read R from standard input" if least == 1 else f"need {least} R on standard input"
        )
    return found


def _write(found: ResourceSet) -> int:
    print(found.encode())
    return 0


def _ids(text: str, rank: str) -> Idset:
    """Parse an idset of cores or GPUs. Raises CommandError with the text of Flux's own error."""
    try:
        return Idset.parse(text)
    except ValueError:
        raise CommandError(f"rlist_append rank={rank}: Invalid argument") from None


def _encode(argv: List[str]) -> int:
    options = _ENCODE.parse(argv)
    options.need(0, 0)
    hosts = list(Hostlist.parse(options.get("hosts")))
    text = options.get("ranks") or str(Idset(range(len(hosts) or 1)))
    ranks = _ids(text, text)
    if hosts and len(hosts) != len(ranks):
        raise CommandError(f"hostname count in '{options.get('hosts')}' does not match nranks ({len(ranks)})")
    first = str(min(ranks, default=0))
    local = options.has("local")
    if (local or options.has("xml")) and (options.has("cores") or options.has("gpus")):
        raise CommandError("do not specify --cores or --gpus with --local or --xml")
    gpus = _ids(options.get("gpus"), first)
    cores = _ids(options.get("cores", "" if gpus else "0"), first)
    if local:
        # The cores and GPUs that a broker here would offer; in a container they may be fewer than the machine's.
        from headrace.engine.broker.discovery import discover

        offered = discover()
        cores, gpus = offered.cores, offered.gpus
    if options.has("xml"):
        # Imported here, because importing the XML parser would slow down the other commands.
        from headrace.formats.spec import hwloc

        node = hwloc.read(options.get("xml"))
        cores, gpus = Idset(range(node.cores)), Idset(range(node.gpus))
        hosts = hosts or [node.host or os.uname().nodename] * len(ranks)
    hosts = hosts or [os.uname().nodename] * len(ranks)
    found = ResourceSet.build(ranks, cores, gpus, hosts)
    for pair in options.get_list("property"):
        name, target = _property(pair)
        found = found.with_property(name, _ids(target, target) if target else ranks)
    return _write(found)


def _property(pair: str) -> List[str]:
    name, _, target = pair.partition(":")
    return [name, target]


def _combine(name: str) -> Callable[[List[str]], int]:
    def combine(argv: List[str]) -> int:
        _PLAIN[name].parse(argv).need(0, 0)
        result, *others = _read()
        for other in others:
            result = getattr(result, name)(other)
        return _write(result)

    return combine


def _remap(argv: List[str]) -> int:
    _PLAIN["remap"].parse(argv).need(0, 0)
    return _write(_read()[0].remap())


def _rerank(argv: List[str]) -> int:
    (hosts,) = _RERANK.parse(argv).need(1, 1)
    return _write(_read()[0].rerank(list(Hostlist.parse(hosts))))


def _decode(argv: List[str]) -> int:
    options = _DECODE.parse(argv)
    options.need(0, 0)
    result, *others = _read()
    for other in others:
        result = result.append(other)
    result = _selected(result, options)
    if options.has("short"):
        print(result.short_form())
    elif options.has("nodelist"):
        print(result.nodelist)
    elif options.has("ranks"):
        print(result.ranks)
    elif options.has("count"):
        print(result.count(options.get("count")))
    else:
        _write(result)
    return 0


def _selected(found: ResourceSet, options: Options) -> ResourceSet:
    if options.has("include"):
        found = found.select_ranks(Idset.parse(options.get("include")))
    if options.has("exclude"):
        found = found.exclude_ranks(Idset.parse(options.get("exclude")))
    if options.has("properties"):
        found = found.select_constraint({"properties": options.get("properties").split(",")})
    return found


def _verify(argv: List[str]) -> int:
    _PLAIN["verify"].parse(argv).need(0, 0)
    expected, actual = _read(2)[:2]
    wrong = []
    for rank in actual.ranks:
        if rank not in expected.ranks:
            wrong.append(f"rank {rank} is not expected")
        elif actual.host(rank) != expected.host(rank):
            wrong.append(f"rank {rank} got hostname '{actual.host(rank)}', expected '{expected.host(rank)}'")
    missing = expected.select_ranks(actual.ranks).diff(actual)
    if missing:
        wrong.append(f"missing resources: {missing.short_form()}")
    if wrong:
        raise CommandError(", ".join(wrong))
    extra = actual.diff(expected)
    if extra:
        sys.stderr.write(f"{PREFIX}extra resources: {extra.short_form()}\n")
    return 0


def _set_property(argv: List[str]) -> int:
    pairs = _SET_PROPERTY.parse(argv).need(1)
    found = _read()[0]
    for pair in pairs:
        name, target = _property(pair)
        if not target:
            ranks = found.ranks
        else:
            try:
                ranks = Idset.parse(target)
            except ValueError:
                ranks = found.select_hosts(Hostlist.parse(target)).ranks
        found = found.with_property(name, ranks)
    return _write(found)


def _parse_config(argv: List[str]) -> int:
    from headrace.wire.query.conf_option import read_path

    (path,) = _PARSE_CONFIG.parse(argv).need(1, 1)
    table = read_path(path).get("resource", {})
    if not isinstance(table, dict):
        raise CommandError("resource: must be a table")
    if "config" not in table and isinstance(table.get("path"), str):
        with open(table["path"], encoding="utf-8") as handle:
            return _write(ResourceSet.from_obj(json.load(handle)))
    rset = ResourceSet.from_config(table.get("config", []))
    if isinstance(table.get("scheduling"), str):
        with open(table["scheduling"], encoding="utf-8") as handle:
            rset = rset.replace(scheduling=json.load(handle))
    return _write(rset)


_ACTIONS: Dict[str, Callable[[List[str]], int]] = {
    "encode": _encode,
    "append": _combine("append"),
    "diff": _combine("diff"),
    "intersect": _combine("intersect"),
    "remap": _remap,
    "rerank": _rerank,
    "decode": _decode,
    "verify": _verify,
    "set-property": _set_property,
    "parse-config": _parse_config,
}
