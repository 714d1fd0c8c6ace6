"""What Spark's processes run, without Spark: planning a table's micro-batches, and reading and publishing a lane."""
