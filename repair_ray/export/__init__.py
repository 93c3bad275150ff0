"""A run's hard pairs and its retrievers in the formats of other tools."""
