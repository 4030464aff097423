"""What a failed call means: logged out, at a limit, or simply failed, told by the words of its error.

Only errors are read so, never an answer: an agent may well write about rate limits.
"""

from __future__ import annotations

import re
from datetime import UTC
from typing import Literal

from mesh.clock import iso, parse
from mesh.runners.profile import Ended, Outcome, Problem
from mesh.runners.profiles.output import inner, objects, plain, shown, tail, words
from mesh.runners.profiles.resets import resets_at

Kind = Literal["failed", "logged_out", "limited", "broken"]
_ERROR_CHARACTERS_MAX = 20_000


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.I)


def _http(status: int) -> str:
    """An HTTP status where it is one, and not just any number."""
    return rf"(?:status|error|code|rejected)\W{{1,12}}{status}\b|^\W*{status}\b|\b{status}\b\W{{0,2}}[{{:]"


_LOGGED_OUT = _any_of(
    _http(401),
    r"unauthori[sz]ed|unauthenticated|not logged in|login required|/login\b|set an auth method",
    r"authentication[_ ]?(?:error|failed|required)|failed to authenticate|not able to authenticate",
    r"(?:invalid|incorrect|wrong|missing|bad|no)[ _](?:x-)?api[ _-]?key",
    r"api[ _]?key[ _](?:is )?(?:not[ _]valid|not set|invalid|missing|expired)|api_key client option must be set",
    r"please (?:run |use )?\W{0,2}(?:\w+ )?log ?in\b|(?:sign|log) in again|please sign in",
    r"(?:oauth|access|refresh|auth)[ _]token (?:has |is |was )?(?:expired|invalid|revoked)",
    r"\btoken[_ ](?:expired|revoked)|(?:no|invalid|missing|expired) (?:valid )?credentials",
    r"must specify the \w*_API_KEY|missing environment variable: `?\w*(?:KEY|TOKEN)",
)
_LIMITED = _any_of(
    _http(429),
    r"rate[ _-]?limit|quota|too many requests|resource[_ ]exhausted|limit (?:has been )?reached\|",
    r"(?:usage|session|weekly|daily|hourly|monthly|[0-9]+-hour|request|token|spend(?:ing)?|plan|account)[ _]limit",
    r"hit your (?:\w+ ){0,2}limit|out of (?:extra )?(?:usage|credits)",
    r"(?:credit balance|credits?) (?:is |are )?(?:too low|exhausted)|insufficient (?:funds|credits?|balance)",
)
#: Limits of one conversation or call, which waiting doesn't end.
_NO_ACCOUNT_LIMIT = re.compile(
    r"context[ _](?:window|length|limit)|maximum context|max[_ ](?:tokens|turns)|prompt is too long", re.I
)


def kind_of(text: str, status: int | None = None) -> Kind:
    """What the words of an error say, or the HTTP status where it is known."""
    if status in (401, 429):
        return "logged_out" if status == 401 else "limited"
    if _LIMITED.search(text) and not _NO_ACCOUNT_LIMIT.search(text):
        return "limited"
    return "logged_out" if _LOGGED_OUT.search(text) else "failed"


def problem(
    text: str, ended: Ended, *, status: int | None = None, until: int | None = None, beside: str = ""
) -> Problem:
    """The problem that a CLI's error text tells. Where the CLI tells them apart: `status` of HTTP, `until` when the
    limit ends (seconds since 1970), `beside` what else was said (the vendor's own body) and need not be shown."""
    text = plain(text[:_ERROR_CHARACTERS_MAX])
    said_all = f"{text}\n{plain(beside[:_ERROR_CHARACTERS_MAX])}"
    kind = kind_of(said_all, status)
    said = shown(_in_words(text)) or "it told no reason"
    if kind != "limited":
        return Problem(kind, said)
    moment = resets_at(f"|{until}" if until else said_all, ended.now)
    return Problem(kind, said, iso(moment.astimezone(UTC)) if moment else None)


def _in_words(text: str) -> str:
    """The message of a vendor's JSON body in place of the body."""
    body = next(objects(text), None) if "{" in text else None
    message = words(inner(body, "error", "message")) or words(inner(body, "message"))
    return f"{text[: text.index('{')]}{message}" if message else text


def silent(ended: Ended, promised: str) -> Problem:
    """What it means that the promised part of the output never came."""
    last = tail(ended.stderr) or tail(ended.stdout)
    told = problem(_telling_lines(ended), ended)
    if told.kind != "failed":
        return told
    if ended.status is None or ended.status == 0:
        how = "ended" if ended.status is None else "ended with status 0"
        return Problem("broken", f"it {how} without {promised}; the end of what came: {last or 'nothing at all'}")
    if signal := _signal(ended.status):
        return Problem("failed", f"it was ended by signal {signal} before it gave {promised}: {last or 'no output'}")
    return Problem("failed", f"it ended with status {ended.status}: {last or 'no output'}")


def _telling_lines(ended: Ended) -> str:
    """The end of standard error, where a CLI that gave no result says why, from the first line on that tells of a login
    or a limit."""
    lines = ended.stderr[-4_000:].split("\n")[-15:]
    start = next((at for at, line in enumerate(lines) if kind_of(line) != "failed"), 0)
    return "\n".join(lines[start:])


def _signal(status: int) -> int | None:
    if status < 0:
        return -status
    return status - 128 if status in (130, 137, 143) else None


def failure(ended: Ended, found: Problem, session: str | None = None) -> Outcome:
    """The outcome of a call without a result."""
    return Outcome(session=session or ended.session or None, problem=found)


#: A shorter wait is left to the CLI; so are the first attempts where nothing says how long.
_WAIT_S_MIN = 300
_ATTEMPTS_MIN = 5


def retrying(ended: Ended, printed: str, mark: str) -> Problem | None:
    """The limit that a running call waits for by itself, if it will wait for long: told by the last line with the mark
    on. None if that is about something else."""
    printed = printed[-20_000:]
    at = printed.rfind(mark)
    if at < 0:
        return None
    told = problem(printed[printed.rfind("\n", 0, at) + 1 :][:2_000], ended)
    if told.kind != "limited":
        return None
    if told.until and ended.now:
        return told if (parse(told.until) - ended.now).total_seconds() > _WAIT_S_MIN else None
    return told if printed.count(mark) >= _ATTEMPTS_MIN else None
