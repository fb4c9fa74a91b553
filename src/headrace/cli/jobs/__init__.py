"""`flux jobs`, and how jobs are asked for."""
