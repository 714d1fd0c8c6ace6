"""The schema registry, by Confluent's client."""
