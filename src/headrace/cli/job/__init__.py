"""`flux job` with its subcommands, and the commands that change jobs."""
