"""Commands that start, inspect and stop an instance and its brokers."""
