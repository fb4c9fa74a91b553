"""One turn of the cluster queue: takes changes and the time, and returns the writes. No I/O."""
