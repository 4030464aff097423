"""What of a text may be seen at all.

Messages carry logs with colours, and may carry worse: sequences that rewrite a terminal, or characters that a model
reads while the person who looks over its shoulder sees nothing. What is left shows the same to both.
"""

from __future__ import annotations

import re
import unicodedata

#: Control strings (operating system commands, device controls) with their end, control sequences, other escapes
#: (ECMA-48). A string without an end loses its introducer only: a log that was cut must not hide what follows.
_ESCAPES = re.compile(
    "(?:\x1b[]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n\x90\x98\x9d-\x9f]*(?:\x07|\x1b\\\\|\x9c)"
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?"
    "|\x1b[ -/]*[0-~]"
)
#: Unicode's default-ignorable characters that no category tells, variation selectors and tags among them; the two
#: that choose how an emoji looks may stay.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0d\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
#: Controls, format characters (bidi overrides, zero width), lone surrogates, private use.
_UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co"})


def plain(text: str) -> str:
    """The text without terminal escapes (whole), control characters but newline and tab, and characters that nobody
    sees or that mean nothing by themselves. Carriage returns and Unicode's line separators become newlines."""
    text = _ESCAPES.sub("", re.sub("\r\n?|[\u2028\u2029]", "\n", text))
    unseen = {ord(character): None for character in set(text) if _is_unseen(character)}
    return text.translate(unseen) if unseen else text


def _is_unseen(character: str) -> bool:
    if character in "\n\t":
        return False
    code = ord(character)
    noncharacter = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
    return noncharacter or unicodedata.category(character) in _UNSEEN_CATEGORIES or bool(_INVISIBLE.match(character))
