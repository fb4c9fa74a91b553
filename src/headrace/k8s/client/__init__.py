"""What user commands do through the API server: read logs, run commands in pods, forward ports."""
