"""The command `scylla-cdc-bridge`."""
