"""What one GPU does with the engines, without Ray: `python -m benchmarks.gpu_engines`."""
