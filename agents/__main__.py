"""`python -m agents coder`: one agent in the foreground, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import sys

from mesh.cli import run_one_agent

if __name__ == "__main__":
    sys.exit(run_one_agent())
