"""A simulated day of generation changes in a large cluster, read by the bridge's own planner; no servers."""
