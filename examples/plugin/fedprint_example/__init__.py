"""A plug-in of fedprint: one component of each kind, named in the entry points of pyproject.toml."""
