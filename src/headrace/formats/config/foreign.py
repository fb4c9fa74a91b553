"""Tables of a configuration that others read: parts of Flux, and projects beside it, that have no counterpart here.

Real configurations hold them, and they are nobody's mistake: they are not told as unknown, and a name that looks like
one of these may be meant for it. Sources: the manuals (section 5) of flux-core and flux-accounting, and flux-coral2.
"""

from __future__ import annotations

# The owner and the purpose of each table, and why it is not read here.
FOREIGN: dict[str, str] = {
    "accounting": "flux-accounting: weights of its priority plugin, which cannot be loaded here",
    "archive": "flux-accounting: where finished jobs are archived; here they are kept in the statedir",
    "content-s3": "flux-core: a store of content in S3; ours is one database",
    "content-sqlite": "flux-core: modes of its database; ours follow from whether there is a statedir",
    "cray-slingshot": "flux-coral2: networks of jobs, by a plugin that cannot be loaded here",
    "kvs": "flux-core: how often it makes a checkpoint; our commits are on disk when they are answered",
    "modules": "flux-core: which module serves as what; here the table sched and the table headrace say that",
    "rabbit": "flux-coral2: storage of Rabbit nodes, by services of its own",
    "systemd": "flux-core: jobs as units of systemd; ours are processes of the agent",
}
