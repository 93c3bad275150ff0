"""People check a run's edits: what they are shown, what their answers come to, and what a run makes of them."""
