"""Reads the streams of one lane in order, with bounded memory and bounded load. Imports no client library."""
