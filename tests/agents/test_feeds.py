"""Feeds, and the text and links in them: what the web has, and what it could send to do harm."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agents import _news
from agents._feeds import ITEMS_MAX, Item, parse_date, parse_feed
from agents._plain import web_address, without_markup
from mesh.errors import SkillInputError
from tests.agents.inputs import BOMB, rss, rss_item

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"


def parsed(text: str | bytes) -> list[Item]:
    return parse_feed(text, "http://example.org/feed").items


def test_rss() -> None:
    [found] = parsed(
        rss(
            "<image><title>not this</title></image>"
            "<item><title>A &amp; B</title><link>https://example.org/a?b=1&amp;c=2</link>"
            '<guid isPermaLink="false">g</guid>'
            "<pubDate>Tue, 17 Feb 2026 08:30:00 +0100</pubDate>"
            "<description><![CDATA[<p>One<br>two &amp; <b>three</b></p><script>bad()</script>]]></description>"
            '<media:title xmlns:media="http://search.yahoo.com/mrss/">not this</media:title></item>'
        )
    )
    assert (found.title, found.summary, found.link) == ("A & B", "One two & three", "https://example.org/a?b=1&c=2")
    assert found.at == datetime(2026, 2, 17, 7, 30, tzinfo=UTC)
    assert found.line == 3


def test_atom() -> None:
    feed = parse_feed(
        '<feed xmlns="http://www.w3.org/2005/Atom"><title type="html">The &lt;b&gt;feed&lt;/b&gt;</title>\n<entry>\n'
        '<id>urn:1</id><title>if a&lt;b then</title><link rel="self" href="/self"/><link href="/page"/>'
        "<published>2026-02-17T08:30:00.5Z</published><updated>2026-02-18T00:00:00Z</updated>"
        '<content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml">One<p>two</p></div></content></entry></feed>',
        "https://example.org/feed",
    )
    assert feed.title == "The feed"
    [found] = feed.items
    assert (found.title, found.summary, found.line) == ("if a<b then", "One two", 2)
    assert found.link == "https://example.org/page"
    assert found.at == datetime(2026, 2, 17, 8, 30, 0, 500_000, tzinfo=UTC)


def test_rdf() -> None:
    feed = parse_feed(
        f'<rdf:RDF xmlns:rdf="{RDF}" xmlns="http://purl.org/rss/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        '<channel rdf:about="http://example.org/"><title>RDF feed</title><items/></channel>'
        '<item rdf:about="http://example.org/1"><title>One</title><dc:date>2026-02-17</dc:date>'
        "<dc:title>not this</dc:title></item></rdf:RDF>",
        "f",
    )
    [found] = feed.items
    assert (feed.title, found.title, found.link) == ("RDF feed", "One", "http://example.org/1")
    assert found.at == datetime(2026, 2, 17, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("Tue, 17 Feb 2026 08:30:00 GMT", datetime(2026, 2, 17, 8, 30, tzinfo=UTC)),
        ("17 Feb 2026 08:30 -0500", datetime(2026, 2, 17, 13, 30, tzinfo=UTC)),
        ("Tue, 17 Feb 2026 08:30:00 -0000", datetime(2026, 2, 17, 8, 30, tzinfo=UTC)),
        (" 2026-02-17T08:30:00+02:00\n", datetime(2026, 2, 17, 6, 30, tzinfo=UTC)),
        ("2026-02-17", datetime(2026, 2, 17, tzinfo=UTC)),
        ("Tue, 31 Feb 2026 08:30:00 GMT", None),
        ("9999-12-31T23:59:59-12:00", None),
        ("0001-01-01T00:00:00+12:00", None),
        ("Tue, 17 Feb 99999999999 08:30:00 GMT", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_dates(text: str, moment: datetime | None) -> None:
    assert parse_date(text) == moment


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("plain", "plain"),
        ("a < b & c > d", "a < b & c > d"),
        ("AT&amp;T &#8211; &euro;", "AT&T – €"),
        ("<p>one</p><p>two</p>", "one two"),
        ('<a href="javascript:x">link</a>', "link"),
        ("x<style>p{}</style>y<SCRIPT>if (a<b) {}</SCRIPT >z", "x y z"),
        ("x<script>never closed", "x"),
        ("<!-- wp:paragraph -->x<![CDATA[", "x<![CDATA["),
        ("<b", "<b"),
        ("a\u202eb\x00c\u200dd\n\te", "abc\u200dd e"),
    ],
)
def test_text_without_markup(html: str, text: str) -> None:
    assert without_markup(html) == text


@pytest.mark.parametrize(
    ("guid", "link"), [("http://example.org/1", "http://example.org/1"), ("urn:x", ""), ("1", ""), ("javascript:x", "")]
)
def test_a_guid_is_a_link_only_if_it_is_an_address(guid: str, link: str) -> None:
    [found] = parsed(rss(rss_item(guid)))
    assert found.link == link


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["<a", "<script>", "<!--", "<", "&", "<a b='", "</"])
def test_hostile_markup_is_read_in_proportion_to_its_length(piece: str) -> None:
    assert len(without_markup(piece * 200_000)) <= len(piece) * 200_000


@pytest.mark.parametrize(
    ("link", "address"),
    [
        ("https://example.org/a b", "https://example.org/a%20b"),
        ("https://example.org/%20?q=ä#x", "https://example.org/%20?q=%C3%A4#x"),
        ("https://example.org/)[x](http://evil)", "https://example.org/%29%5Bx%5D%28http://evil%29"),
        ('https://example.org/<b>|\\"`', "https://example.org/%3Cb%3E%7C%5C%22%60"),
        ("/path", "http://base.example/path"),
        ("javascript:alert(1)", ""),
        ("java\nscript:alert(1)", ""),
        ("data:text/html,x", ""),
        ("file:///etc/passwd", ""),
        ("file://example.org/etc/passwd", ""),
        ("ftp://example.org/", ""),
        ("", ""),
        ("mailto:a@example.org", ""),
        ("http://[bad", ""),
        ("http://example.org/" + "x" * 3000, ""),
    ],
)
def test_links_are_web_addresses_or_nothing(link: str, address: str) -> None:
    assert web_address(link, "http://base.example/feed") == address


EXTERNAL = '<!DOCTYPE rss [<!ENTITY x SYSTEM "file:///etc/passwd">]><rss><channel><title>&x;</title></channel></rss>'


ATTRIBUTES = f'<!DOCTYPE rss [<!ATTLIST item x CDATA "{"x" * 10_000}">]><rss/>'


@pytest.mark.parametrize(
    ("document", "line", "said"),
    [
        (BOMB, 2, "the document declares entities or attributes of its own, which is refused"),
        (EXTERNAL, 1, "the document declares entities or attributes of its own, which is refused"),
        (ATTRIBUTES, 1, "the document declares entities or attributes of its own, which is refused"),
        ("", 1, "no element found"),
        ("not xml", 1, "syntax error"),
        ("<rss>\n<channel>\n<item>\n</channel></rss>", 4, "mismatched tag"),
        ("<rss>\n<channel>&nbsp;</channel></rss>", 2, "undefined entity"),
        ("<rss><a:b/></rss>", 1, "unbound prefix"),
        ("<!DOCTYPE html>\n<html><body/></html>", 2, "not an RSS or Atom feed: the document is a <html>"),
        ("<feed/>", 1, "not an RSS or Atom feed"),
        ("<rss>" + "<a>" * 70, 1, "elements are nested more than 64 deep"),
        (b"<rss>\n<channel>\xe9</channel></rss>", 2, "not well-formed"),
        (b'<?xml version="1.0" encoding="x-none"?><rss/>', 1, "unknown encoding"),
        (b'<?xml version="1.0" encoding="utf-7"?><rss/>', 1, "unreadable encoding"),
        (b'<?xml version="1.0" encoding="shift_jis"?><rss>\x81</rss>', 1, "unreadable encoding"),
    ],
)
def test_malformed_and_hostile_documents_are_refused_by_line(document: str | bytes, line: int, said: str) -> None:
    with pytest.raises(SkillInputError) as error:
        parse_feed(document, "http://example.org/feed")
    assert error.value.detail.startswith(f"http://example.org/feed line {line}: ")
    assert said in error.value.detail


def test_nothing_is_loaded_from_outside_and_known_entities_are_text() -> None:
    """RSS 0.91 names a DTD for its entities."""
    [found] = parsed(
        '<!DOCTYPE rss PUBLIC "-//Netscape Communications//DTD RSS 0.91//EN" "http://127.0.0.1:1/rss.dtd">'
        "<rss><channel><item><title>caf&eacute;&bogus;</title></item></channel></rss>"
    )
    assert found.title == "café"


@pytest.mark.parametrize("encoding", ["iso-8859-1", "windows-1252", "utf-8", "utf-16"])
def test_declared_encodings(encoding: str) -> None:
    document = f'<?xml version="1.0" encoding="{encoding}"?>' + rss_item("1", "Größe").join(
        ["<rss><channel>", "</channel></rss>"]
    )
    [found] = parsed(document.encode(encoding))
    assert found.title == "Größe"


def test_a_multibyte_encoding() -> None:
    document = (
        '<?xml version="1.0" encoding="Shift_JIS"?><rss><channel><item><title>日本</title></item></channel></rss>'
    )
    [found] = parsed(document.encode("shift_jis"))
    assert found.title == "日本"


def test_huge_fields_and_feeds_are_cut() -> None:
    feed = parse_feed(rss(rss_item("1", "x" * 1_000_000, f"<description>{'y ' * 400}</description>")), "f")
    assert len(feed.items[0].title) == 20_000
    assert len(feed.items[0].summary) <= 301 and feed.items[0].summary.endswith("…")
    many = parse_feed(rss(*(rss_item(str(number)) for number in range(ITEMS_MAX + 1))), "f")
    assert (len(many.items), many.cut) == (ITEMS_MAX, True)


def test_ids_tell_items_apart() -> None:
    items = parsed(
        rss(
            rss_item("same", "A"),
            rss_item("same", "B"),
            "<item><link>http://example.org/1</link><title>C</title></item>",
            "<item><title>D</title></item>",
            "<item><title>D</title><pubDate>2026-02-17</pubDate></item>",
            "<item/>",
            "<item><guid>no text</guid></item>",
        )
    )
    assert [found.title for found in items] == ["A", "B", "C", "D", "D"]
    assert len({found.key for found in items}) == 4
    assert [found.title for found in _news.new_items(items, [])] == ["D", "A", "C", "D"]
