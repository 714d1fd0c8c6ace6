"""Runs the bridge as a process of its own and measures processes by `/proc`."""
