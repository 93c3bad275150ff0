"""Turns an image-text retriever's own mistakes into the training data that repairs them, on Ray."""

__version__ = "0.1.0"
