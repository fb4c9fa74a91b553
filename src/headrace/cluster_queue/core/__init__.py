"""What the cluster queue does next: a state machine that takes what has changed and the time, and returns writes."""
