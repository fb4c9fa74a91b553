"""The services that a broker loads as modules (RFC 5): a file or a package each."""

# The file of each service, which has `load(ctx, args)`.
SERVICES = {
    "barrier": "barrier",
    "content": "content.service",
    "content-sqlite": "content.sqlite",
    "heartbeat": "heartbeat",
    "job-exec": "job_exec.service",
    "job-info": "job_info",
    "job-ingest": "job_ingest.service",
    "job-list": "job_list.service",
    "job-manager": "job_manager.service",
    "kvs": "kvs.service",
    "kvs-watch": "kvs.watch",
    "resource": "resource.service",
    "rexec": "rexec",
    "sched-graph": "sched.graph.service",
    "sched-simple": "sched.simple.service",
}

# What services have on rank 0 alone and need as soon as it starts.
LEADERS_PARTS = ("resource.source",)
