"""Parts of the connectors that need no server."""
