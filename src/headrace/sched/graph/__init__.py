"""The resource graph: resources, their use over time, and the match of requests.

Pure except for the tool `resource_query`: no sockets, files or clocks; time is an argument, in whole seconds. It
depends on `spec` alone and can be used without the rest of Headrace: read a graph (`formats`), wrap it in a
`Scheduler`, match requests, write the results.
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
