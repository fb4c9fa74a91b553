"""Objects of the Kubernetes API: kinds, quantities, labels, times, and what is wrong with one. Pure."""
