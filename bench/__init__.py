"""The project's speedometer: `python -m bench` measures the bridge on this machine and prints the figures."""
