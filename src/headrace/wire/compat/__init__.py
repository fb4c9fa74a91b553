"""The parts by which `flux` and `import flux` resolve to Headrace."""
