"""How a schema registry names schemas and frames records."""
