"""Feeds as the web has them: RSS 2.0 and its elders, RSS 1.0 (RDF), Atom (RFC 4287).

They come from strangers: documents that declare entities or attributes of their own are refused (an entity that
holds entities can grow without bound), nothing outside the document is ever loaded, and depth, text and items have
an upper bound.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from html.entities import html5
from typing import NoReturn
from xml.parsers import expat

from agents._plain import one_line, web_address, without_markup
from mesh.errors import SkillInputError

ITEMS_MAX = 2000
_DEPTH_MAX = 64
_TEXT_MAX = 20_000
_SUMMARY_MAX = 300

_ATOM = "http://www.w3.org/2005/Atom"
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
#: Where a feed's own elements live. Other vocabularies (media, podcasts) have titles too, of other things.
_OWN = ("", _ATOM, "http://purl.org/rss/1.0/", "http://my.netscape.com/rdf/simple/0.9/")
_BORROWED = {
    "http://purl.org/dc/elements/1.1/ date": "date",
    "http://purl.org/rss/1.0/modules/content/ encoded": "content",
}
_FIELDS = ("title", "link", "guid", "id", "pubDate", "published", "updated", "description", "summary", "content")
#: What expat can't read by itself, of the encodings that feeds are written in.
_MULTIBYTE = ("big5", "euc-jp", "euc-kr", "gb2312", "gbk", "gb18030", "iso-2022-jp", "shift_jis")
_DECLARED = re.compile(rb"""<\?xml[^>]*?encoding=["']([A-Za-z0-9._-]{1,40})["']""")


@dataclass(frozen=True)
class Item:
    """One entry of a feed. `key` tells it from the feed's others, for good; `link` is empty or safe to show."""

    key: str
    title: str
    link: str
    summary: str
    at: datetime | None
    line: int


@dataclass(frozen=True)
class Feed:
    title: str
    items: list[Item]
    #: More items than `ITEMS_MAX`; the rest was not read.
    cut: bool = False


@dataclass
class _Entry:
    """An item that is being read; `literal` are the fields whose text is no HTML."""

    line: int
    depth: int
    fields: dict[str, str] = field(default_factory=dict)
    literal: set[str] = field(default_factory=set)

    def text(self, *names: str) -> str:
        """The first of these fields that has text."""
        for name in names:
            raw = self.fields.get(name, "")
            if text := one_line(raw) if name in self.literal else without_markup(raw):
                return text
        return ""

    def raw(self, *names: str) -> str:
        return next((text for name in names if (text := self.fields.get(name, "").strip())), "")


class _Reader:
    """Receives the document's parts from expat, and keeps what a report needs."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.path: list[str] = []
        self.title = ""
        self.entries: list[_Entry] = []
        self.cut = False
        self._entry: _Entry | None = None
        self._field, self._field_depth = "", 0
        self._text: list[str] = []
        self._room = 0
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.SkippedEntityHandler = self._skipped_entity
        self._parser.StartDoctypeDeclHandler = self._doctype

    def read(self, data: bytes | str) -> None:
        try:
            self._parser.Parse(_decoded(data), True)
        except expat.ExpatError as error:
            self.wrong(error.lineno, expat.ErrorString(error.code))
        except (ValueError, LookupError) as error:
            self.wrong(self._parser.CurrentLineNumber, f"unreadable encoding ({error})")

    def wrong(self, line: int, what: str) -> NoReturn:
        raise SkillInputError(f"{self.source} line {line}: {what}.", file=self.source, line=line)

    def _here(self, what: str) -> NoReturn:
        self.wrong(self._parser.CurrentLineNumber, what)

    def _doctype(self, name: str, system_id: str | None, public_id: str | None, has_internal_subset: int) -> None:
        if has_internal_subset:
            self._here("the document declares entities or attributes of its own, which is refused")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        namespace, _, local = name.rpartition(" ")
        self.path.append(local)
        depth = len(self.path)
        if depth == 1 and not _is_feed(namespace, local):
            self._here(f"not an RSS or Atom feed: the document is a <{local[:40]}>")
        if depth > _DEPTH_MAX:
            self._here(f"elements are nested more than {_DEPTH_MAX} deep")
        if self._entry is None:
            if local in ("item", "entry") and namespace in _OWN:
                self._open(depth, attributes)
            elif local == "title" and namespace in _OWN and self.path[-2:-1] in (["channel"], ["feed"]):
                self._collect("title")
        elif self._field:
            self._characters(" ")  # markup inside a text: words on both sides of a tag stay apart
        elif depth == self._entry.depth + 1:
            self._start_field(self._entry, namespace, local, attributes)

    def _open(self, depth: int, attributes: dict[str, str]) -> None:
        self._entry = _Entry(self._parser.CurrentLineNumber, depth)
        if about := attributes.get(f"{_RDF} about"):
            self._entry.fields["about"] = about

    def _start_field(self, entry: _Entry, namespace: str, local: str, attributes: dict[str, str]) -> None:
        name = _BORROWED.get(f"{namespace} {local}", local if namespace in _OWN and local in _FIELDS else "")
        if name == "link" and namespace == _ATOM:
            if attributes.get("rel", "alternate") == "alternate":
                entry.fields.setdefault("link", attributes.get("href", ""))
        elif name and name not in entry.fields:
            if namespace == _ATOM and attributes.get("type", "text") in ("text", "xhtml"):
                entry.literal.add(name)
            self._collect(name)

    def _collect(self, name: str) -> None:
        self._field, self._field_depth, self._text, self._room = name, len(self.path), [], _TEXT_MAX

    def _characters(self, text: str) -> None:
        if self._field and self._room > 0:
            self._text.append(text[: self._room])
            self._room -= len(text)

    def _skipped_entity(self, name: str, is_parameter: bool) -> None:
        self._characters(html5.get(f"{name};", ""))

    def _end(self, name: str) -> None:
        depth = len(self.path)
        if self._field and depth == self._field_depth:
            text, kept = "".join(self._text), self._field
            self._field = ""
            if self._entry:
                self._entry.fields[kept] = text
            else:
                self.title = self.title or without_markup(text)
        elif self._entry and depth == self._entry.depth:
            if len(self.entries) < ITEMS_MAX:
                self.entries.append(self._entry)
            else:
                self.cut = True
            self._entry = None
        self.path.pop()


def parse_feed(data: bytes | str, source: str) -> Feed:
    """The feed of this address or file. Raises SkillInputError with source and line where it is malformed."""
    reader = _Reader(source)
    reader.read(data)
    items = [item for entry in reader.entries if (item := _item(entry, source)).title or item.link]
    return Feed(reader.title or source, items, reader.cut)


def parse_date(text: str) -> datetime | None:
    """A date of RFC 822 or ISO 8601 in UTC; None where it is neither, or of a year that can't be meant."""
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = parse(text.strip())
            moment = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
        except (ValueError, TypeError, OverflowError, IndexError):
            continue
        return moment if 1990 <= moment.year <= 2200 else None
    return None


def _item(entry: _Entry, source: str) -> Item:
    title, summary = entry.text("title"), entry.text("description", "summary", "content")
    guid = entry.raw("guid")
    # A guid is an address unless it says otherwise; many that are none don't say so.
    link = entry.raw("link", "about") or (guid if guid.startswith(("http://", "https://")) else "")
    identity = entry.raw("guid", "id", "about", "link") or f"{title}\n{entry.raw('pubDate', 'date')}\n{summary}"
    return Item(
        # Ids can be as long as their maker likes; what is remembered of thousands must be short.
        key=hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:16],
        title=title or summary,
        link=web_address(link, source if source.startswith(("http://", "https://")) else ""),
        summary="" if not title else summary[:_SUMMARY_MAX].rstrip() + "…" * (len(summary) > _SUMMARY_MAX),
        at=parse_date(entry.raw("pubDate", "published", "date", "updated")),
        line=entry.line,
    )


def _is_feed(namespace: str, local: str) -> bool:
    return (namespace, local) in ((_ATOM, "feed"), (_RDF, "RDF"), ("", "rss"))


def _decoded(data: bytes | str) -> bytes | str:
    """Text where only Python can decode it; else the bytes, whose encoding expat finds."""
    if isinstance(data, bytes) and (declared := _DECLARED.match(data.lstrip())):
        encoding = declared[1].decode().lower()
        if encoding in _MULTIBYTE:
            return data.decode(encoding)
    return data
