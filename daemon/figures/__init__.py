"""Figures that the daemon publishes: metrics, long waits, the status line."""
