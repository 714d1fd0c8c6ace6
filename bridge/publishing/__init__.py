"""The exactly-once protocol: its decisions, the publisher of one lane, and the ownership of a table's lanes."""
