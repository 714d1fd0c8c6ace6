"""Compares what arrived in Kafka with what was written."""
