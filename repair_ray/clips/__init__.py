"""SAN on precomputed clip features, as `repair-ray san` runs it: in one process, into a run directory."""
