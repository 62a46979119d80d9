"""The control socket: connections, requests, answers."""
