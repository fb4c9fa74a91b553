"""Runs the brokers of a plan: on this machine (`local`), or in a pod (`pod`)."""
