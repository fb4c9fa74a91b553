"""`flux kvs` and its subcommands."""
