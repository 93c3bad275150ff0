"""Builds a multi-match benchmark: queries with all their matches among many pictures, and what is known of its gaps.

After DSMM-TBIR of SAFT (arXiv 2608.10524), with what its referees missed: how complete the candidates are, how far
verifiers agree, what the benchmark shares with what is trained on, and a subset without the teachers (methods,
section 2).
"""
