"""From a command line to running brokers: one, or all of a test instance."""
