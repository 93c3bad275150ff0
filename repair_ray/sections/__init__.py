"""The sections of a config: every setting with its default, its limits and what it means."""
