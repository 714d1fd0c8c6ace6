"""What stands in for a ScyllaDB cluster: a local stack, a simulator of its CDC log, recorded logs, and a demo."""
