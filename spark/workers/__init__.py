"""Starts and ends Spark's Python processes."""
