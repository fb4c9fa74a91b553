"""From a command line to running brokers: one broker, or all brokers of a test instance."""
