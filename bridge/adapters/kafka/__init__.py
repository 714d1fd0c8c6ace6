"""Kafka through Confluent's client."""
