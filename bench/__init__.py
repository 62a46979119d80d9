"""Benchmarks: questions, answered beside physical limits and other libraries. `python -m bench`; see README.md."""
