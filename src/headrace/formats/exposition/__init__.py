"""Metrics for Prometheus: counters, gauges and histograms, and their text (format 0.0.4).

This takes only a few lines of the standard library. prometheus_client would add collectors, registries and a server.
"""
