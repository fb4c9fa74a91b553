"""Commands that start, reach and end an instance and its brokers."""
