"""Kafka, by Confluent's client."""
