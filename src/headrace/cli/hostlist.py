"""`flux hostlist`: combines, counts, sorts and searches lists of hosts (RFC 29)."""

from __future__ import annotations

import os
import sys
from collections import Counter

from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import List

PREFIX = "flux-hostlist: ERROR: "


def _parser() -> Parser:
    parser = Parser(
        "flux-hostlist",
        description="Fetch, combine and query lists of hosts",
        epilog="SOURCES may include instance, jobid, local, avail, stdin (or -), job ids and lists of hosts.",
    )
    add = parser.add_argument
    shown = parser.add_mutually_exclusive_group().add_argument
    combined = parser.add_mutually_exclusive_group().add_argument
    shown("-e", "--expand", action="store_true", help="Print every host, not the short form")
    add("-d", "--delimiter", metavar="S", default=" ", help="Separator of hosts with --expand")
    shown("-c", "--count", action="store_true", help="Print the number of hosts")
    add("-n", "--nth", metavar="[-]N|IDS", help="Print the hosts at these positions (from 0; -N from the end)")
    add("-F", "--find", metavar="HOSTS", help="Print the positions of HOSTS in the list")
    add("-L", "--limit", metavar="N", type=int, help="Print at most N hosts (-N: the last ones)")
    add("-S", "--sort", action="store_true", help="Sort the list")
    add("-x", "--exclude", metavar="IDS|HOSTS", help="Leave out these hosts, or the hosts at these positions")
    add("-u", "--union", "--unique", action="store_true", help="Keep one of each host, sorted")
    combined("-i", "--intersect", action="store_true", help="Keep hosts that are in every source")
    combined("-m", "--minus", action="store_true", help="Subtract the other sources from the first")
    combined("-X", "--xor", action="store_true", help="Keep hosts that are in an odd number of sources")
    add("-f", "--fallback", action="store_true", help="Treat a job id (f1) without a job as a host")
    add("-l", "--local", action="store_true", help="Without a source, use the hosts of this job or instance")
    add(
        "-q",
        "--quiet",
        action="store_true",
        help="Print nothing; exit with 1 if the list is empty or a host of --find is missing",
    )
    add("sources", metavar="SOURCES", nargs="*", help="Sources of hosts (default: stdin)")
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    sources = list(args.sources) or ["local" if args.local else "stdin"]
    lists = [_source(text, args) for text in sources]
    hosts = _combine(lists, args)
    if args.exclude:
        hosts = _exclude(hosts, args.exclude)
    if args.union:
        hosts = list(dict.fromkeys(hosts))
    if args.sort or args.union:
        hosts = _sorted(hosts)
    if args.limit is not None:
        hosts = hosts[: args.limit] if args.limit >= 0 else hosts[args.limit :]
    if args.nth:
        hosts = _nth(hosts, args.nth)
    shown = _shown(hosts, args)
    if args.quiet:
        return 0 if hosts else 1
    if shown:
        print(shown)
    return 0


def _shown(hosts: List[str], args: Namespace) -> str:
    """The text to print. Raises CommandError if a host of `--find` is not in the list."""
    separator = args.delimiter.replace("\\n", "\n") if args.expand else " "
    if args.find:
        return separator.join(map(str, _positions(hosts, args.find)))
    if args.count:
        return str(len(hosts))
    return separator.join(hosts) if args.expand else _encoded(hosts)


def _encoded(hosts: List[str]) -> str:
    return str(Hostlist(hosts).encode())


def _sorted(hosts: List[str]) -> List[str]:
    ordered = Hostlist(hosts)
    ordered.sort()
    return list(ordered)


def _source(text: str, args: Namespace) -> List[str]:
    """The hosts of one source. Raises CommandError."""
    if text in ("stdin", "-"):
        _wait_for_stdin(os.environ.get("FLUX_HOSTLIST_STDIN_TIMEOUT", ""))
        return [host for line in sys.stdin for word in line.split() for host in _parse(word)]
    if text in ("instance", "local", "avail", "available", "jobid"):
        return _from_instance(text)
    if text[:1] == "/":
        return _job(text.rpartition("/")[2])
    from headrace.formats.spec import jobid

    try:
        jobid.parse(text)
    except ValueError:
        return _parse(text)
    if args.fallback:
        try:
            return _job(text)
        except (CommandError, OSError):
            return _parse(text)
    return _job(text)


def _wait_for_stdin(seconds: str) -> None:
    """Wait until standard input is readable or at its end.

    Raises CommandError after this number of seconds.
    """
    if not seconds:
        return
    import select

    try:
        ready, _, _ = select.select([sys.stdin], [], [], float(seconds))
    except (ValueError, OverflowError):
        raise CommandError(f"FLUX_HOSTLIST_STDIN_TIMEOUT: {seconds} is not a number of seconds") from None
    if not ready:
        raise CommandError(f"timeout after {seconds}s waiting for standard input")


def _parse(text: str) -> List[str]:
    try:
        return list(Hostlist.parse(text))
    except ValueError:
        raise CommandError(f"Invalid jobid or hostlist {text}") from None


def _from_instance(name: str) -> List[str]:
    from headrace.wire.client.handle import Handle

    own = os.environ.get("FLUX_JOB_ID", "")
    if name == "jobid" or (name == "local" and own):
        if not own:
            raise CommandError("jobid: FLUX_JOB_ID is not set")
        return _job(own)
    handle = Handle()
    everything = _parse(handle.attr_get("hostlist"))
    if name[:5] != "avail":
        return everything
    status = handle.rpc("resource.status", nodeid=0).get()
    usable = Idset.parse(status["online"]) - Idset.parse(status.get("exclude", ""))
    for ids in status["drain"]:
        usable = usable - Idset.parse(ids)
    return [host for rank, host in enumerate(everything) if rank in usable]


def _job(text: str) -> List[str]:
    from headrace.formats.spec import jobid
    from headrace.wire.client.handle import Handle

    try:
        job = jobid.parse(text)
    except ValueError:
        raise CommandError(f"Invalid jobid or hostlist {text}") from None
    # Outside of `try`, because a missing socket of the broker raises FileNotFoundError, too.
    handle = Handle()
    try:
        found = handle.rpc("job-list.list-id", {"id": job, "attrs": ["nodelist"]}).get()["job"]
    except FileNotFoundError:
        raise CommandError(f"job {text} not found") from None
    return _parse(found["nodelist"]) if found.get("nodelist") else []


def _combine(lists: List[List[str]], args: Namespace) -> List[str]:
    first = lists[0]
    if args.intersect:
        rest = [set(other) for other in lists[1:]]
        return [host for host in first if all(host in other for other in rest)]
    if args.minus:
        # Each occurrence of a host in the other sources removes one occurrence from the first.
        away = Counter(host for other in lists[1:] for host in other)
        kept = []
        for host in first:
            if away[host] > 0:
                away[host] -= 1
            else:
                kept.append(host)
        return kept
    if args.xor:
        for other in lists[1:]:
            here, there = set(first), set(other)
            first = [host for host in first if host not in there] + [host for host in other if host not in here]
        return _sorted(first)
    return [host for hosts in lists for host in hosts]


def _exclude(hosts: List[str], text: str) -> List[str]:
    try:
        positions = Idset.parse(text)
    except ValueError:
        away = set(_parse(text))
        return [host for host in hosts if host not in away]
    return [host for index, host in enumerate(hosts) if index not in positions]


def _nth(hosts: List[str], text: str) -> List[str]:
    """The hosts at position N, at -N from the end, or at several positions."""
    negative = text[:1] == "-"
    try:
        positions = list(Idset.parse(text.lstrip("-")))
    except ValueError:
        raise CommandError(f"--nth: invalid index or idset '{text}'") from None
    if not positions or max(positions) > len(hosts) - (0 if negative else 1):
        raise CommandError(f"--nth: index {text} is out of range: the list has {len(hosts)} hosts")
    return [hosts[-position] for position in reversed(positions)] if negative else [hosts[n] for n in positions]


def _positions(hosts: List[str], text: str) -> List[int]:
    wanted = _parse(text)
    missing = [host for host in wanted if host not in hosts]
    if missing:
        raise CommandError(f"hosts '{_encoded(missing)}' not found")
    return [hosts.index(host) for host in wanted]
