"""The benchmark: `python -m bench` measures the bridge on this machine and prints the results."""
