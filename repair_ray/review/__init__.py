"""A page on this machine where people label items of a run; and what they said, kept as lines of a file each."""
