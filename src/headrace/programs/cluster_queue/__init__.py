"""The cluster queue."""
