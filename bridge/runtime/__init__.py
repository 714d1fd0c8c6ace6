"""Logging, signals, temporary folders, retries, background calls, and finding Java: for every process."""
