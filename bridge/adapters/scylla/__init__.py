"""ScyllaDB through its CQL driver."""
