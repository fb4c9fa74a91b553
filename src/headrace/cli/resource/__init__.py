"""`flux resource`, `flux R` and the questions to the resource graph."""
