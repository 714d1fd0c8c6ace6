"""Base tables of the simulator: statements, mutations, and the rows that they leave."""
