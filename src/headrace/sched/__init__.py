"""Scheduling as a library: the resource graph, and the policies of queues. Pure."""
