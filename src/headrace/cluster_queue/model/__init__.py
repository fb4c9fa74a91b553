"""What the cycle knows, as values: the cluster as last seen, its queues, and each queued job with its demand."""
