"""ScyllaDB, by its CQL driver."""
