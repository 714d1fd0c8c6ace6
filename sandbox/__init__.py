"""Replaces a ScyllaDB cluster on one machine: a local stack, a simulator of the CDC log, recorded logs, and a demo."""
