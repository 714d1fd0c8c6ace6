"""CPU time of one change on its way through the bridge's own Python, step by step; no servers."""
