"""Builders of the inputs that several test files read: calendars and feeds."""

from __future__ import annotations

#: An entity that holds entities, line 2: the "billion laughs" in small.
BOMB = (
    '<?xml version="1.0"?>\n<!DOCTYPE rss [\n<!ENTITY a "ha">\n<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">\n]>\n'
    "<rss><channel><item><title>&b;</title></item></channel></rss>"
)


def rss(*items: str, title: str = "Feed") -> str:
    """A feed whose items start in line 3."""
    return (
        f'<?xml version="1.0"?>\n<rss version="2.0"><channel><title>{title}</title>\n{"".join(items)}</channel></rss>'
    )


def rss_item(guid: str, title: str = "T", more: str = "") -> str:
    return f"<item><guid>{guid}</guid><title>{title}</title>{more}</item>\n"


def vevent(*lines: str, summary: str = "S") -> str:
    return "\r\n".join(["BEGIN:VEVENT", f"SUMMARY:{summary}", *lines, "END:VEVENT"])


def vcalendar(*events: str) -> str:
    """A calendar whose first event begins in line 3."""
    return "\r\n".join(["BEGIN:VCALENDAR", "VERSION:2.0", *events, "END:VCALENDAR", ""])
