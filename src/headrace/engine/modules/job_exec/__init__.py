"""The execution service (RFC 32): the leader on rank 0, and the service of each broker's own node."""
