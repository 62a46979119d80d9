"""Limits: the parts of the work that nobody can leave out, done as fast as the machine allows. One noun a file."""
