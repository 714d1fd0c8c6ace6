"""What is generated from the settings: the example file, the reference table and the JSON schema."""
