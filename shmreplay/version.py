"""The version of the package; pyproject.toml says the same."""

VERSION = "0.1.0"
