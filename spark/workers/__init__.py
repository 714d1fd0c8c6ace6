"""Spark's Python processes: how they start and how they end."""
