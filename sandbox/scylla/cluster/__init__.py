"""The simulated cluster: nodes, streams, generations and tablets."""
