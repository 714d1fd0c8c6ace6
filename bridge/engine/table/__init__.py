"""What a job decides about one table: how it starts, when it starts again, and whether its change topic is the same."""
