"""The claims of the papers, each a table made by one command: `python -m benchmarks.claims`."""
