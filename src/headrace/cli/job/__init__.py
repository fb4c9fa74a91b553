"""`flux job` and its subcommands, and commands that change jobs."""
