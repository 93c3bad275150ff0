"""`python -m repair_ray`."""

from repair_ray.cli import main

main()
