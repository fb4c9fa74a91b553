"""The resource graph: what there is, who holds it and until when, and which part of it answers a request.

Pure but for the tool `resource_query`: no sockets, files or clocks; time is an argument, in whole seconds. It depends
on `spec` alone and can be used without the rest of Headrace: read a graph (`formats`), wrap it in a `Scheduler`, ask it
to match, write what it chose.
"""

from headrace.sched.graph.model import Graph, GraphError
from headrace.sched.graph.request import Request, RequestError, parse_jobspec
from headrace.sched.graph.scheduler import Outcome, Scheduler
from headrace.sched.graph.usage import Allocation

__all__ = [
    "Allocation",
    "Graph",
    "GraphError",
    "Outcome",
    "Request",
    "RequestError",
    "Scheduler",
    "parse_jobspec",
]
