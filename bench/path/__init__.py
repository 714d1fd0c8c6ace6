"""Measures the CPU time of one change in the bridge's own Python, step by step, without servers."""
