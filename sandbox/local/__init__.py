"""The streams of the local stack: which one takes a write, and how a user lets them change as a cluster's do."""
