"""Launch of brokers from a command line: one broker, or all brokers of a test instance."""
