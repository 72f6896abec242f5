"""Text becomes lexemes: the units that full-text search counts and compares.

The same function reads the stored text and the query, so the two always agree. It knows no
language: no stemming, no stop words.

    "Élève"          eleve                               accents and case are folded
    "l'eau"          l, eau
    "2026-11-30"     2026, 11, 30, =2026-11-30           a compound: its parts, and the whole with a "="
    "getUserName"    getusername, get, user, name
    "東京都"          東京, 京都                            scripts without spaces: every two neighbours

A hostile text costs time in proportion to its length: every pattern is possessive.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

#: The lexer's version, stored with an index: another version means reading the texts again.
VERSION = 1

#: The longest lexeme, in characters; what is longer is cut, in texts and queries alike.
MAX_LEXEME = 256
#: The largest document length, in lexemes, and the largest count of one lexeme that an index can hold.
MAX_LENGTH = 16383
MAX_COUNT = 1023

# Marks that sit on a letter without making another one: Latin, Greek, Cyrillic, Hebrew and Arabic
# signs, variation selectors; also the soft hyphen, joiners and the Arabic stretching stroke. The
# vowel signs of Indic and Thai scripts and the voicing marks of kana are none of these.
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0711\u0730-\u074a\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff"
    "\ufe00-\ufe0f\ufe20-\ufe2f\U000e0100-\U000e01ef\u00ad\u0640\u200c\u200d\u2060\ufeff]+"
)
_LETTERS = str.maketrans({"œ": "oe", "æ": "ae", "ø": "o", "ł": "l", "đ": "d", "\u0131": "i"})
_JOINERS = str.maketrans(dict.fromkeys("\u2019\u02bc", "'") | dict.fromkeys("\u2010\u2011", "-"))
# `unicodedata` sorts a run of marks in quadratic time, so long runs of what no word is made of are cut first.
_SIGNS = re.compile(r"[^\w\x00-\x7f]++")
_LONGEST_RUN = 32

# Han, kana, Hangul, Thai, Lao, Myanmar, Khmer: written without spaces.
_DENSE = (
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u1100-\u11ff\uac00-\ud7af\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1780-\u17d3"
)
# Indic and Tibetan letters with their vowel signs, which `\w` leaves out.
_SIGNED = "\u0900-\u0963\u0966-\u0dff\u0f40-\u0fbc"
_WORD = rf"(?:[^\W_{_DENSE}]|[{_SIGNED}])"
_JOIN = r"[_.\-:/@#+&']"

_TOKEN = re.compile(rf"[{_DENSE}]++|{_WORD}++(?:{_JOIN}{{1,3}}+{_WORD}++)*+[+#]{{0,3}}+")
_PART = re.compile(rf"{_WORD}++")
_PLAIN = re.compile(r"[^\W\d_]++(?:['\-]++[^\W\d_]++)*+")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
_DENSE_RUN = re.compile(rf"[{_DENSE}]++")


def lexemes(text: str) -> list[str]:
    """The lexemes of a text, in its order and with repeats.

    None is empty, longer than `MAX_LEXEME` characters, or holds NUL or a lone surrogate.
    """
    found: list[str] = []
    for token in _TOKEN.findall(_folded(text)):
        found += _known(token) if len(token) <= 64 else _read(token)
    return found


def counted(texts: Iterable[str]) -> tuple[int, dict[str, int]]:
    """The length of a document made of these texts, and how often each lexeme occurs in it.

    The length is in lexemes, at most `MAX_LENGTH`; a count is at most `MAX_COUNT`.
    """
    found = [lexeme for text in texts for lexeme in lexemes(text)]
    counts: dict[str, int] = Counter(found)
    if len(found) > MAX_COUNT:
        counts = {lexeme: min(count, MAX_COUNT) for lexeme, count in counts.items()}
    return min(len(found), MAX_LENGTH), counts


def _folded(text: str) -> str:
    if text.isascii():
        return text
    short = _SIGNS.sub(lambda run: run.group()[:_LONGEST_RUN], text)
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", short))
    # Recomposed, so that a Hangul syllable or a voiced kana is one character again.
    return unicodedata.normalize("NFC", bare).translate(_JOINERS)


def _read(token: str) -> tuple[str, ...]:
    if _DENSE_RUN.match(token):
        return tuple(token[i : i + 2] for i in range(len(token) - 1)) or (token,)
    found: list[str] = []
    parts = _PART.findall(token)
    for part in parts:
        humps = _HUMP.split(part)
        found += [part, *humps] if len(humps) > 1 else humps
    if token[-1] in "+#" or (len(parts) > 1 and not _PLAIN.fullmatch(token)):
        found.append("=" + token)
    # Last, because a hump is seen by its capital: "Œuvre" has none, "OEuvre" has one.
    return tuple(lexeme[:MAX_LEXEME].casefold().translate(_LETTERS)[:MAX_LEXEME] for lexeme in found)


_known = lru_cache(maxsize=1 << 16)(_read)
