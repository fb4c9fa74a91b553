"""The services that a broker loads as modules (RFC 5). Each is a file or a package."""

# The file of each service, relative to this package. It defines `load(ctx, args)`.
SERVICES = {
    "accounting": "accounting",
    "api": "api",
    "barrier": "barrier",
    "content": "content.service",
    "content-sqlite": "content.sqlite",
    "cron": "cron.service",
    "heartbeat": "heartbeat",
    "job-exec": "job_exec.service",
    "job-info": "job_manager.info",
    "job-ingest": "job_ingest.service",
    "job-list": "job_list.service",
    "job-manager": "job_manager.service",
    "kvs": "kvs.service",
    "kvs-watch": "kvs.watch",
    "resource": "resource.service",
    "rexec": "rexec",
    "sched-graph": "sched.service",
    "sched-simple": "sched.simple",
}

# Files that only rank 0 imports, already at its start.
LEADERS_PARTS = ("resource.source",)
