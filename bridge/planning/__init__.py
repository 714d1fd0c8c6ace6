"""Decides what a micro-batch reads and when. Pure."""
