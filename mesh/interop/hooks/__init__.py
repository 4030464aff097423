"""What runs inside CLI sessions: the hook program, and the plugins of CLIs that have no shell hooks."""
