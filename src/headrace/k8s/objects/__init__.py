"""Objects of the Kubernetes API: kinds, conditions, quantities, labels, times, validation. Pure."""
