"""The keys that a configuration may have, table by table, with the types of their values.

Sources: flux-config(5) and the pages of its tables (flux-config-bootstrap(5), -exec(5), -tbon(5) and so on), RFC 33 for
queues and policies. The table `headrace` is our own. `keys` checks a configuration against these tables.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Union

from . import guests


class ValueType(NamedTuple):
    """The type of a key's value: the TOML parser's Python types, and the type's name in error messages.

    `has_effect` is true if Headrace reads the value.
    """

    types: tuple[type, ...]
    text: str
    has_effect: bool = True


# The expected value of a key: a table with keys of its own, a value of a type, ANY or NO_EFFECT.
Expected = Union[dict[str, Any], ValueType, str]
# Any value; the module that reads it checks it and reports its own errors.
ANY = "any"
NO_EFFECT = "no effect"
BOOL = ValueType((bool,), "true or false")
INTEGER = ValueType((int,), "integer")
FLAG = ValueType((int, bool), "integer")
TEXT = ValueType((str,), "string")
TEXTS = ValueType((list,), "a list of strings")
SIGNAL = ValueType((int, str), "a signal's name or number")
TIME = ValueType((str,), "a duration such as '5s'")
UNUSED_TIME = ValueType((str,), "string", has_effect=False)
UNUSED_TABLE = ValueType((dict,), "a table", has_effect=False)
UNUSED_INTEGER = ValueType((int,), "an integer", has_effect=False)
UNUSED_TEXT = ValueType((str,), "a string", has_effect=False)
NUMBER = ValueType((int, float), "integer or real")
LIMIT = ValueType((int,), "an integer, 0 or more")
PORT = ValueType((int,), "a port, 1 to 65535")
TABLE = ValueType((dict,), "a table")
FILE = ValueType((str,), "the name of a file")
TABLE_LIST = ValueType((list,), "an array of tables")

_SIZES = {"nnodes": ANY, "ncores": ANY, "ngpus": ANY}
_POLICY = {
    "jobspec": {"defaults": {"system": {"duration": ANY, "queue": ANY}}},
    "limits": {"duration": ANY, "job-size": {"max": _SIZES, "min": _SIZES}},
    "access": {"allow-user": NO_EFFECT, "allow-group": NO_EFFECT},
    "scheduler": TABLE,
}
QUEUE = {"requires": ANY, "hosts": ANY, "policy": _POLICY, "parent": NO_EFFECT}
TABLES: dict[str, dict[str, Any]] = {
    "accounting": {
        # When limits are checked: "always" or, as flux-accounting does, "at-submit".
        **dict.fromkeys(("cluster", "database", "limits", "password_file"), TEXT),
        **dict.fromkeys(("count_running", "strict"), BOOL),
        "interval": ValueType((str, int, float), "a duration such as '60s'"),
        # The weights are in flux-accounting's database.
        "factor-weights": UNUSED_TABLE,
    },
    "access": {
        **dict.fromkeys(("allow-guest-user", "allow-root-owner", "private-mode"), BOOL),
        "roles": {"admin": dict.fromkeys(("users", "groups"), TEXTS)},
        # Limits of each guest and of all guests together (broker/budget.py).
        "limits": dict.fromkeys(("connections", "bytes", "all-bytes", "streams", "subscriptions", "log-bytes"), LIMIT),
    },
    "bootstrap": {
        "curve_cert": ValueType((str,), "the name of a certificate file, as `flux keygen` makes one"),
        **dict.fromkeys(("default_bind", "default_connect"), TEXT),
        "hosts": TABLE_LIST,
        "default_port": PORT,
        "enable_ipv6": BOOL,
    },
    "exec": {
        **dict.fromkeys(("kill-signal", "term-signal"), SIGNAL),
        **dict.fromkeys(("kill-timeout", "max-kill-timeout"), TIME),
        "max-kill-count": INTEGER,
        # In Flux, these keys configure the shell processes. Here shells run in the agent, so the keys have no effect.
        **dict.fromkeys(("imp", "job-shell", "method", "service"), TEXT),
        "service-override": BOOL,
        "max-start-delay-percent": NUMBER,
        "sdexec-properties": ANY,
        "sdexec-stop-timer-sec": INTEGER,
        "sdexec-stop-timer-signal": SIGNAL,
        "testexec": {"allow-guests": BOOL},
        "barrier-timeout": UNUSED_TIME,
        "shell-exit-timeout": ValueType((str, int, float), "a duration such as '5s'", has_effect=False),
    },
    "headrace": {
        **dict.fromkeys(("exec-modules", "skip-modules"), TEXTS),
        **dict.fromkeys(("drain-lost", "expects-late-nodes"), BOOL),
        "most-requeues": INTEGER,
        # The options of `headrace api start`.
        "api": {
            **dict.fromkeys(
                ("host", "socket", "tls-cert", "tls-key", "auth", "database", "audit", "experiments"), TEXT
            ),
            **dict.fromkeys(("proxy-header", "unknown-users"), TEXT),
            "port": ValueType((int,), "a port, 0 to 65535"),
            "behind-proxy": BOOL,
            "name": TEXTS,
        },
        "guests": {
            **dict.fromkeys(("mechanism", "pam-service", "submit"), TEXT),
            "min-uid": INTEGER,
            "limits": dict.fromkeys(guests.LIMITS, LIMIT),
        },
    },
    "heartbeat": dict.fromkeys(("period", "timeout", "warn_thresh"), ANY),
    "ingest": {
        # Flux sends jobs to worker processes in batches. Headrace has no such workers; both keys have no effect.
        "batch-count": INTEGER,
        "buffer-size": TEXT,
        # Its known keys are in FROBNICATOR. It may also have a table for each plugin.
        "frobnicator": TABLE,
        "validator": {
            **dict.fromkeys(("args", "plugins"), ANY),
            "disable": BOOL,
            "require-instance": dict.fromkeys(("mincores", "minnodes"), INTEGER),
        },
    },
    "job-manager": {
        **dict.fromkeys(("inactive-age-limit", "inactive-num-limit"), ANY),
        "journal-size-limit": INTEGER,
        **dict.fromkeys(("epilog", "housekeeping", "perilog", "prolog"), UNUSED_TABLE),
        "plugins": TABLE_LIST,
        "stop-queues-on-restart": ValueType((bool,), "true or false", has_effect=False),
    },
    "policy": _POLICY,
    "resource": {
        "config": TABLE_LIST,
        "exclude": ANY,
        **dict.fromkeys(("no-update-watch", "norestrict", "noverify", "rediscover"), BOOL),
        **dict.fromkeys(("path", "scheduling"), FILE),
        "verify": ANY,
        "history": NO_EFFECT,
        "journal-max": UNUSED_INTEGER,
        "reserve": UNUSED_TEXT,
    },
    "sched": {"module": ValueType((str,), "simple or graph")},
    "sched-fluxion-qmanager": dict.fromkeys(
        (
            *("queue-policy", "queue-params", "policy-params"),
            *("queue-policy-per-queue", "queue-params-per-queue", "policy-params-per-queue"),
            "fair-share",
        ),
        ANY,
    ),
    "sched-fluxion-resource": {
        **dict.fromkeys(("match-policy", "match-format"), ANY),
        # These keys tune Fluxion or name the source of its resources. They have no effect here.
        **dict.fromkeys(("load-allowlist", "load-file", "load-format", "prune-filters"), TEXT),
        **dict.fromkeys(("subsystems", "traverser"), TEXT),
        **dict.fromkeys(("reserve-vtx-vec", "update-interval"), INTEGER),
    },
    "tbon": {
        **dict.fromkeys(("child_rcvhwm", "zmq_io_threads"), INTEGER),
        **dict.fromkeys(("prefertcp", "zmqdebug"), FLAG),
        **dict.fromkeys(("connect_timeout", "tcp_user_timeout", "torpid_max", "torpid_min"), TEXT),
        **dict.fromkeys(("interface-hint", "topo"), TEXT),
    },
}

FROBNICATOR = {"disable": BOOL, "plugins": TEXTS, "args": TEXTS}
# Tables in which Flux rejects an unknown key, and the module that its error names. Scripts match the message.
STRICT_FOR = {
    "access": "connector-local",
    "heartbeat": "heartbeat",
    "ingest": "job-ingest",
    "policy": "job-manager",
    "queues": "job-manager",
    "resource": "resource",
}
# The module that an error about a value of the wrong type names. Flux's job-exec accepts unknown keys.
READ_BY = {**STRICT_FOR, "exec": "job-exec"}

# Tables of other programs: parts of Flux, and related projects, that have no counterpart here. Real configurations
# contain them, so they are not reported as unknown, and they are suggested for similar names. Sources: the manuals
# (section 5) of flux-core and flux-accounting, and flux-coral2. The value names the owner and purpose of the table, and
# the reason why Headrace does not read it.
FOREIGN: dict[str, str] = {
    "archive": "flux-accounting: where finished jobs are archived; here they are kept in the statedir",
    "content-s3": "flux-core: a store of content in S3; ours is one database",
    "content-sqlite": "flux-core: modes of its database; here a statedir determines them",
    "cray-slingshot": "flux-coral2: networks of jobs, by a plugin that cannot be loaded here",
    "kvs": "flux-core: interval of checkpoints; here each commit is on disk before its response",
    "modules": "flux-core: alternatives for modules; here the tables sched and headrace have these settings",
    "rabbit": "flux-coral2: storage of Rabbit nodes, by services of its own",
    "systemd": "flux-core: jobs as units of systemd; ours are processes of the agent",
}
