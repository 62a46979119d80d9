"""Benchmarks: questions, answered beside their physical limits. `python -m bench` runs them; see README.md."""
