"""What users' commands do through the API server: logs, commands in pods, ports. For any object."""
