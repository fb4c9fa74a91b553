"""Carries out the plan of an experiment on its targets."""
