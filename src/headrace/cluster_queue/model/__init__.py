"""The state of the cycle, as values: the cluster as last seen, its queues, and the queued jobs."""
