"""SAN: negatives that look alike (arXiv 2607.09263, sections 3.2 to 3.4; methods, section 3). Numpy only."""
