"""Executes jobs: a leader on rank 0, a part on each broker."""
