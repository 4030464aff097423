"""Measure everything (or what is named), print a table, write bench.json. Exit status 1 if a bar is missed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import documents, health, hooks, idle_day, mail_load, mail_send, processes, transcripts
from benchmarks.measure import Figure


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--idle-seconds", type=float, default=60.0, help="how long the idle mesh is watched")
    parser.add_argument(
        "--only",
        action="append",
        help="documents, health, hooks, processes, idle_day, mail_send, mail_load or transcripts; may be repeated",
    )
    options = parser.parse_args()
    parts: dict[str, Callable[[], list[Figure]]] = {
        "documents": documents.figures,
        "health": health.figures,
        "hooks": hooks.figures,
        "processes": lambda: processes.figures(options.idle_seconds),
        "idle_day": idle_day.figures,
        "mail_send": mail_send.figures,
        "mail_load": mail_load.figures,
        "transcripts": transcripts.figures,
    }
    found: list[Figure] = []
    for name, part in parts.items():
        if options.only is None or name in options.only:
            found += part()
    Path("bench.json").write_text(json.dumps([figure.dump() for figure in found], indent=1, ensure_ascii=False) + "\n")
    for figure in found:
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f} × {figure.yardstick} ({figure.yardstickValue:g})"
        verdict = {True: "ok", False: "MISSED", None: "n/a"}[figure.ok]
        print(f"{verdict:<6}  {figure.name:<42} {figure.value:>10g} {figure.unit:<12} bar {figure.bar:<9} {ratio}")
    return int(any(figure.ok is False for figure in found))


if __name__ == "__main__":
    sys.exit(main())
