"""Parses CQL statements."""
