"""What Prometheus reads: counters, gauges and histograms, and their text (format 0.0.4). Pure, standard library alone.

It is a few lines, where prometheus_client would add collectors, registries and a server.
"""
