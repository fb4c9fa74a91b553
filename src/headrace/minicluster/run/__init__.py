"""Brokers for a plan: on this machine (local), or in a pod."""
