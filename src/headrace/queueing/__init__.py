"""Queue policies: which pending job starts next, and which pending jobs have reservations.

Like the graph, this is a library without I/O: time is an argument, in whole seconds, and decisions are returned.
"""

from headrace.queueing.policies import POLICIES, QueuePolicy, by_name
from headrace.queueing.queue import Decision, Planned, Queue, Refused, Started

__all__ = ["POLICIES", "Decision", "Planned", "Queue", "QueuePolicy", "Refused", "Started", "by_name"]
