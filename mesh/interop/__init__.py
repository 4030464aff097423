"""Speaks to foreign clients: hooks of CLIs, MCP."""
