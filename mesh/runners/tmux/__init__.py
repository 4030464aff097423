"""An interactive CLI agent in tmux: its screen is read, and a one-line doorbell is typed where that is safe."""

from mesh.runners.tmux.runner import TmuxRunner

__all__ = ["TmuxRunner"]
