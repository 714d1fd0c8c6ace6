"""Reads a configuration file and names each problem with its line."""
