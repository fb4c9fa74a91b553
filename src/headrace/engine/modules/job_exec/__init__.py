"""The execution service (RFC 32): a leader on rank 0, and a part on each broker."""
