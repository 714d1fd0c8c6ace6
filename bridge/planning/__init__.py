"""Decides what a micro-batch reads, how much and when, and which changes are lost. Pure."""
