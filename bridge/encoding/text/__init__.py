"""Decoded records as text."""
