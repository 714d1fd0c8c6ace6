"""The exactly-once protocol: its decisions, and the publisher of one lane."""
