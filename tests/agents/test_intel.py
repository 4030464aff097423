"""Intel's skill: what is new, over tables of cases, real files, and feeds from a real server."""

from __future__ import annotations

import http.server
import pathlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from agents import _news, intel
from agents._feeds import ITEMS_MAX, Feed, Item
from mesh import Report
from mesh.errors import SkillInputError
from mesh.service.skill_context import SkillContext
from mesh.store import Store
from tests.agents.inputs import BOMB, rss, rss_item
from tests.agents.stage import ContextMaker, section
from tests.fakes import FakeClock

Put = Callable[[str, str | bytes | None], None]
TODAY = date(2026, 2, 17)


class Web:
    """A server on the loopback interface; `pages` maps paths to bodies, another path is not found."""

    def __init__(self, server: http.server.ThreadingHTTPServer) -> None:
        self.pages: dict[str, bytes] = {}
        self.base = f"http://127.0.0.1:{server.server_address[1]}"

    def url(self, path: str, body: str | bytes) -> str:
        self.pages[path] = body.encode() if isinstance(body, str) else body
        return self.base + path


@pytest.fixture
def web() -> Iterator[Web]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = served.pages.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: Any) -> None:
            """The tests' output is no place for an access log."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = Web(server)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served
        server.shutdown()
        thread.join(timeout=10)
        assert not thread.is_alive()


@pytest.fixture
def put(store: Store, tmp_path: pathlib.Path) -> Put:
    """Put a file into `knowledge/intel/`, from which the samples are gone; None takes it away."""
    folder = tmp_path / "shared" / "knowledge" / "intel"
    for sample in folder.iterdir():
        sample.unlink()

    def write(file: str, content: str | bytes | None) -> None:
        (folder / file).unlink(missing_ok=True)
        if content is not None:
            (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)

    return write


async def run(context: SkillContext, store: Store | None = None) -> Report:
    """A scan; with a store, what it asks to remember is remembered."""
    report = await intel.agent.skills["News Scan"](context)
    if store:
        store.remember("intel", report.remember)
    return report


def item(key: str, at: datetime | None = None) -> Item:
    return Item(key, f"title {key}", "", "", at, 1)


@pytest.mark.parametrize(
    ("present", "seen", "new"),
    [
        (["a", "b"], [], ["a", "b"]),
        (["a", "b"], ["a"], ["b"]),
        (["a", "b"], ["b", "a", "z"], []),
        (["a", "a"], [], ["a"]),
        ([], ["a"], []),
    ],
)
def test_new_is_what_was_not_seen(present: list[str], seen: list[str], new: list[str]) -> None:
    assert [found.key for found in _news.new_items(map(item, present), seen)] == new


def test_the_newest_comes_first_and_what_has_no_date_last() -> None:
    items = [item("none"), item("old", datetime(2026, 1, 1, tzinfo=UTC)), item("new", datetime(2026, 2, 1, tzinfo=UTC))]
    assert [found.key for found in _news.new_items(items, [])] == ["new", "old", "none"]


def test_memory_is_bounded_and_never_forgets_what_the_feed_still_has() -> None:
    present = [item(f"p{number}") for number in range(1500)]
    seen = [f"s{number}" for number in range(1999)] + ["p0"]
    kept = _news.remembered(present, seen)
    assert kept == [f"s{number}" for number in range(1499, 1999)] + [found.key for found in present]
    assert len(kept) == ITEMS_MAX
    assert _news.remembered([], ["a"]) == ["a"]


async def test_a_second_scan_reports_only_what_came_since(
    web: Web, put: Put, store: Store, make_context: ContextMaker
) -> None:
    put("notes.md", "# Rival\n\nThey moved.\n")
    url = web.url("/feed", rss(rss_item("1", "First"), title="The | feed"))
    settings = {"feeds": [url]}
    first = await run(make_context("intel", settings=settings), store)
    assert first.text.splitlines()[0] == "1 new item, 1 new or changed file in 1 feed and 1 file."
    assert section(first.text, "The \\| feed") == "- no date: First"
    assert "| notes.md | new | Rival | They moved. |" in first.text
    assert first.evidence == [
        f"{url}: 1 item, new in lines: 3",
        "knowledge/intel: 1 text read",
        "knowledge/intel/notes.md: Rival",
    ]

    again = await run(make_context("intel", settings=settings), store)
    assert again.text.splitlines()[0] == "Nothing new in 1 feed and 1 file since the last scan."
    assert "First" not in again.text

    web.url("/feed", rss(rss_item("2", "Second"), rss_item("1", "First, edited")))
    put("notes.md", "# Rival\n\nThey moved back.\n")
    third = await run(make_context("intel", settings=settings), store)
    assert section(third.text, "Feed") == "- no date: Second"
    assert "| notes.md | changed | Rival | They moved back. |" in third.text


async def test_an_item_is_shown_with_link_date_and_summary(put: Put, make_context: ContextMaker) -> None:
    more = (
        "<link>https://example.org/x</link><pubDate>Tue, 17 Feb 2026 23:30:00 -0500</pubDate>"
        "<description>S*</description>"
    )
    put(
        "f.xml", rss(rss_item("1", "T [x](javascript:y)\n# z", more), rss_item("2", "# U", "<link>javascript:z</link>"))
    )
    report = await run(make_context("intel", settings={"feeds": ["f.xml"]}))
    assert section(report.text, "Feed").splitlines() == [
        "- 2026-02-18: [T \\[x\\](javascript:y) # z](https://example.org/x) – S\\*",
        "- no date: # U",
    ]
    assert report.evidence[0] == "knowledge/intel/f.xml: 2 items, new in lines: 3, 5"


async def test_a_broken_feed_does_not_hide_the_others_and_is_reported(
    web: Web, store: Store, put: Put, make_context: ContextMaker
) -> None:
    good, bad = web.url("/good", rss(rss_item("1", "Good"))), web.url("/bad", BOMB)
    feeds = [bad, good, f"{web.base}/gone", "none.xml", "http://127.0.0.1:1/"]
    progress: list[float] = []
    report = await run(make_context("intel", settings={"feeds": feeds}, progress=progress), store)
    assert report.text.splitlines()[0] == (
        "1 new item, 0 new or changed files in 1 feed and 0 files; 4 sources could not be read."
    )
    failed = section(report.text, "Could not be read").splitlines()
    assert failed[0] == f"- {bad} line 2: the document declares entities or attributes of its own, which is refused."
    assert failed[1] == f"- {web.base}/gone: the server answered 404."
    assert failed[2] == "- knowledge/intel/none.xml is missing."
    assert failed[3].startswith("- http://127.0.0.1:1/: ConnectError")
    assert "- no date: Good" in report.text
    assert progress == [0.2, 0.4, 0.6, 0.8, 1.0]


async def test_a_feed_that_fails_once_is_not_forgotten(
    web: Web, store: Store, put: Put, make_context: ContextMaker
) -> None:
    put("notes.txt", "Note")
    url = web.url("/feed", rss(rss_item("1", "First")))
    settings = {"feeds": [url]}
    await run(make_context("intel", settings=settings), store)
    web.url("/feed", "broken")
    await run(make_context("intel", settings=settings), store)
    web.url("/feed", rss(rss_item("1", "First")))
    report = await run(make_context("intel", settings=settings), store)
    assert report.text.startswith("Nothing new in 1 feed and 1 file")


async def test_feeds_no_longer_configured_are_forgotten(
    web: Web, store: Store, put: Put, make_context: ContextMaker
) -> None:
    old, new = web.url("/old", rss(rss_item("1"))), web.url("/new", rss(rss_item("1")))
    await run(make_context("intel", settings={"feeds": [old]}), store)
    report = await run(make_context("intel", settings={"feeds": [new]}), store)
    assert list(report.remember["seen"]) == [new]


async def test_a_file_that_can_not_be_read_is_reported_and_remembered(
    store: Store, put: Put, make_context: ContextMaker
) -> None:
    put("a.md", "A")
    put("b.txt", "B")
    first = await run(make_context("intel"), store)
    put("b.txt", "Gr\xfc\xdfe".encode("latin-1"))
    second = await run(make_context("intel"), store)
    assert section(second.text, "Could not be read") == "- knowledge/intel/b.txt line 1: not UTF-8 text."
    assert second.remember == first.remember


async def test_when_nothing_can_be_read_that_is_an_error_with_the_reasons(put: Put, make_context: ContextMaker) -> None:
    put("f.xml", "<rss>\n<channel>")
    put("n.md", b"\xff")
    with pytest.raises(SkillInputError) as error:
        await run(make_context("intel", settings={"feeds": ["f.xml"]}))
    assert error.value.detail == (
        "None of the sources could be read. knowledge/intel/f.xml line 2: no element found. "
        "knowledge/intel/n.md line 1: not UTF-8 text."
    )


async def test_with_nothing_configured_the_error_says_what_to_configure(put: Put, make_context: ContextMaker) -> None:
    put("data.csv", "a,b\n")
    with pytest.raises(SkillInputError, match=r"Set agents\.intel\.settings\.feeds in registry\.json to a list"):
        await run(make_context("intel"))


@pytest.mark.parametrize(
    "feeds",
    [
        "http://example.org/",
        [""],
        [7],
        ["/etc/passwd"],
        ["../finance/grants.csv"],
        [".hidden"],
        ["ftp://example.org/"],
        ["http://[bad/"],
        ["http://example.org:99999/"],
        ["http://"],
        ["http://exa mple.org/"],
        [f"http://example.org/{number}" for number in range(101)],
    ],
)
async def test_wrong_settings_are_errors(put: Put, make_context: ContextMaker, feeds: object) -> None:
    put("n.md", "N")
    with pytest.raises(SkillInputError, match=r"registry\.json: agents\.intel\.settings\.feeds"):
        await run(make_context("intel", settings={"feeds": feeds}))


def test_a_long_list_is_cut_and_says_so() -> None:
    items = [replace(item(str(number)), title=f"item {number}") for number in range(60)]
    news = _news.News([_news.FeedNews("f", Feed("Feed", items), items)])
    lines = section(_news.describe(news, UTC), "Feed").splitlines()
    assert (len(lines), lines[49], lines[50]) == (51, "- no date: item 49", "- and 10 older items, not shown")


@pytest.mark.parametrize("day", [date(2026, 1, 1), date(2028, 2, 29), date(2030, 12, 31)])
async def test_samples_work_on_any_day_and_say_what_they_are(
    time: FakeClock, make_context: ContextMaker, day: date
) -> None:
    time.jump((day - TODAY).total_seconds())
    report = await run(make_context("intel"))
    assert "| sample-note.md | new | Sample note: replace it | This is a sample." in report.text
    with_feed = await run(make_context("intel", settings={"feeds": ["sample-feed.xml"]}))
    assert "## Sample feed: replace it" in with_feed.text
