"""The accounting database and its service: a process of its own, and a client of its instance."""
