"""`flux account` and its relatives: banks, users, limits and usage, through the service `accounting`."""
