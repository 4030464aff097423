"""What is new since the last scan: feeds and texts in, with what was seen before; findings out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo

from agents._feeds import ITEMS_MAX, Feed, Item
from agents._markdown import bullets, clip, count, escape, report, table

#: More of one source than anybody reads; the rest is counted.
_SHOWN_MAX = 50
_EXCERPT_MAX = 200


@dataclass(frozen=True)
class FeedNews:
    """A feed that could be read, and its items that were not seen before, the newest first."""

    source: str
    feed: Feed
    new: list[Item]


@dataclass(frozen=True)
class FileNews:
    """A text that was added or changed."""

    file: str
    changed: bool
    title: str
    excerpt: str


@dataclass
class News:
    """A scan's findings. `failed` says what could not be read, and why."""

    feeds: list[FeedNews] = field(default_factory=list)
    files: list[FileNews] = field(default_factory=list)
    files_read: int = 0
    failed: list[str] = field(default_factory=list)

    @property
    def items(self) -> int:
        return sum(len(news.new) for news in self.feeds)


def new_items(items: Iterable[Item], seen: Iterable[str]) -> list[Item]:
    """Those not seen before, each once; the newest first, those without a date last."""
    known, found = set(seen), list[Item]()
    for item in items:
        if item.key not in known:
            known.add(item.key)
            found.append(item)
    oldest = datetime.min.replace(tzinfo=UTC)
    return sorted(found, key=lambda item: item.at or oldest, reverse=True)


def remembered(items: Sequence[Item], seen: Sequence[str]) -> list[str]:
    """The keys to remember: the feed's present ones, and as many earlier ones as there is room for."""
    present = list(dict.fromkeys(item.key for item in items))[:ITEMS_MAX]
    now = set(present)
    earlier = [key for key in seen if key not in now]
    return earlier[max(0, len(earlier) + len(present) - ITEMS_MAX) :] + present


def fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def new_files(texts: Mapping[str, str], seen: Mapping[str, str]) -> list[FileNews]:
    """The texts (by name) that were added or whose content differs from the fingerprint seen before."""
    return [
        FileNews(file, file in seen, *_heading(text, file))
        for file, text in texts.items()
        if seen.get(file) != fingerprint(text)
    ]


def _heading(text: str, file: str) -> tuple[str, str]:
    """Title and excerpt: the first line that says something, and what follows it."""
    lines = [line.strip().lstrip("#").strip() for line in text.splitlines()]
    said = [line for line in lines if line]
    return (said[0], " ".join(said[1:])) if said else (file, "(empty)")


def describe(news: News, zone: tzinfo) -> str:
    """The report as Markdown, dates in `zone`."""
    sections = [(escape(clip(found.feed.title, _EXCERPT_MAX)), _feed(found, zone)) for found in news.feeds if found.new]
    if news.failed:
        sections.insert(0, ("Could not be read", bullets(news.failed)))
    if news.files:
        sections.append(("Files added or changed", _files(news.files)))
    return report(_summary(news), *sections, ("Sources", _sources(news)))


def _summary(news: News) -> str:
    read = f"{count(len(news.feeds), 'feed')} and {count(news.files_read, 'file')}"
    failed = f"; {count(len(news.failed), 'source')} could not be read" if news.failed else ""
    if not news.items and not news.files:
        return f"Nothing new in {read} since the last scan{failed}."
    new = f"{count(news.items, 'new item')}, {count(len(news.files), 'new or changed file')}"
    return f"{new} in {read}{failed}."


def _feed(found: FeedNews, zone: tzinfo) -> str:
    lines = [_line(item, zone) for item in found.new[:_SHOWN_MAX]]
    rest = len(found.new) - len(lines)
    return "\n".join([*lines, *([f"- and {count(rest, 'older item')}, not shown"] if rest else [])])


def _line(item: Item, zone: tzinfo) -> str:
    title = escape(clip(item.title, _EXCERPT_MAX)) or "(no title)"
    linked = f"[{title}]({item.link})" if item.link else title
    day = f"{item.at.astimezone(zone):%Y-%m-%d}" if item.at else "no date"
    return f"- {day}: {linked}" + (f" – {escape(item.summary)}" if item.summary else "")


def _files(files: Iterable[FileNews]) -> str:
    cells = [
        (f.file, "changed" if f.changed else "new", clip(f.title, _EXCERPT_MAX), clip(f.excerpt, _EXCERPT_MAX))
        for f in files
    ]
    return table(("File", "State", "Title", "Excerpt"), cells)


def _sources(news: News) -> str:
    cells = [(n.source, len(n.feed.items), len(n.new), "cut short" if n.feed.cut else "") for n in news.feeds]
    return table(("Feed", "Items", "New", "Note"), cells) if cells else "No feed was read."
