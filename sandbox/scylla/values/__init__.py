"""CQL values as the simulator holds them."""
