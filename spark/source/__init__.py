"""The streaming source `scylla-cdc`."""
