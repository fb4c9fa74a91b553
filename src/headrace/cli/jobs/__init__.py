"""`flux jobs`, `pgrep`, `pkill` and `pstree`: commands that select and show jobs."""
