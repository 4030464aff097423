"""Edits the configuration files of CLIs: only what is the mesh's, and so that it can be taken back."""
