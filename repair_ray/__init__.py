"""Turns an image-text retriever's own mistakes into the training data that repairs them, on Ray."""
