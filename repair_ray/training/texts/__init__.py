"""Training a text tower on sentences alone: SimCSE, with hard-negative mixing."""
