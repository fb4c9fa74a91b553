"""`flux resource`, `flux R` and queries of the resource graph."""
