"""What makes `flux` and `import flux` resolve to us."""
