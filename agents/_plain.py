"""Text and links from pages of strangers, made safe to show: no markup, no addresses but http and https."""

from __future__ import annotations

import html
import re
from urllib.parse import quote, urljoin, urlsplit

#: A tag ends before the next `<`, so that the time to search grows with the text only, whatever stands in it.
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*|[!?])[^<>]*>")
_HIDDEN = ("script", "style")
#: Joiners and non-joiners are letters' business in many scripts; other invisible characters only mislead.
_JOINERS = "\u200c\u200d"
_ADDRESS_MAX = 2000


def one_line(text: str) -> str:
    """The text on one line, without characters that can't be seen."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable() or c in _JOINERS)


def without_markup(text: str) -> str:
    """The text of a piece of HTML on one line; scripts and styles are left out."""
    parts, at, hidden = list[str](), 0, ""
    for tag in _TAG.finditer(text):
        if not hidden:
            parts.append(text[at : tag.start()])
        name = tag[2].lower()
        if hidden:
            hidden = "" if tag[1] and name == hidden else hidden
        elif not tag[1] and name in _HIDDEN:
            hidden = name
        at = tag.end()
    if not hidden:
        parts.append(text[at:])
    return one_line(html.unescape(" ".join(parts)))


def web_address(link: str, base: str) -> str:
    """The link as an address that can stand in Markdown, resolved against `base`; empty unless http or https."""
    if not link.strip():
        return ""  # resolving would give the base itself
    try:
        address = urljoin(base, link.strip())
        parts = urlsplit(address)
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.hostname or len(address) > _ADDRESS_MAX:
        return ""
    return quote(address, safe="%/:=&?~#+!$,;'@")
