"""The schema registry through Confluent's client."""
