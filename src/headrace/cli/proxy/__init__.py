"""`flux proxy`: runs a command as a client of another instance."""
