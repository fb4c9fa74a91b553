"""Queue policies: which pending job starts next, and what is promised to those that must wait.

Pure like the graph they stand on: time is an argument, in whole seconds, and what happens is returned as decisions.
"""

from headrace.queueing.policies import POLICIES, QueuePolicy, by_name
from headrace.queueing.queue import Decision, Planned, Queue, Refused, Started

__all__ = ["POLICIES", "Decision", "Planned", "Queue", "QueuePolicy", "Refused", "Started", "by_name"]
