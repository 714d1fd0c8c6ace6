"""What the benchmark writes to tables and reads from topics."""
