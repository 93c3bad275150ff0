"""One of each kind of plugin."""
