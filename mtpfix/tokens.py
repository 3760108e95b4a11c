"""What must not be shown: tokens, passwords and signatures, wherever they stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mtpfix import late

SHORTEST = 8  # characters of a secret of the environment; a shorter one may be any word
_STARS = "***"
_PLAIN = frozenset("-._~")

# Tokens of the Hub: `hf_` and 34 letters and digits, those of OAuth and of trusted publishers, and `api_` or `api_org_`
# and as many, which it gave until 2022.
_HUB_TEXT = r"(hf_|api_)(?:(?:oauth|jwt)_[A-Za-z0-9._-]{20,}|(?:org_)?[A-Za-z0-9]{30,}|(?<=hf_)[A-Za-z0-9]{20,})"
_HUB = late.pattern(_HUB_TEXT)
# A name and a password before an address's host. JSON may write the slashes with a backslash.
_LOGIN = late.pattern(r"(:(?:\\?/){2})[^/\s\"\\]+@")
_LOGIN_TEXT = r":(?:\\?/){2}[^/\s\"\\:@]+:[^/\s\"\\]+@"
# What a signed address carries (Amazon S3 and CloudFront, Google Cloud Storage, Azure Blob), and tokens as a query.
_QUERY_TEXT = (
    r"((?:[?&;]|\\u0026|%3[fF]|%26)"
    r"(?i:x-(?:amz|goog)-[a-z-]+|signature|policy|key-pair-id|expires|awsaccesskeyid|googleaccessid|sig|se|sp|skoid"
    r"|(?:access_|auth_|id_|refresh_)?token|auth|authorization|api_?key|key|secret|client_secret|password)"
    r"(?:=|%3[dD]))[^&\s\"'<>\\]+"
)
_QUERY = late.pattern(_QUERY_TEXT)
_IN_FILES = tuple(late.pattern(text.encode()) for text in (_HUB_TEXT, _LOGIN_TEXT, _QUERY_TEXT))
_MARKS = ("?", "&", ";", "\\u0026", "%3f", "%3F", "%26")
_HEADER = late.pattern(r"\b(Bearer|bearer|Basic) +[A-Za-z0-9+/=._~-]{8,}")
# Variables whose value is a secret by their name: HF_TOKEN, GITHUB_TOKEN, AWS_SECRET_ACCESS_KEY, DJANGO_SECRET_KEY.
_VARIABLES = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIALS", "_KEY", "_PASS", "_PWD", "_PAT")
_ADDRESSES = ("HF_ENDPOINT", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")

_LONG_PIECE = 12  # characters of a secret between two of its dots, where names are cut, or of a line of a key
_FRAME = "-----"  # BEGIN PRIVATE KEY-----
_AT_ONCE = 1 << 12  # names that are looked at
_DEEP = 16  # backslashes before a character, of texts in texts
_SLASH = r"(?:\\|%(?:25){0,4}5c)"
_NAMED = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}

_known: dict[str, _Odd | None] = {}  # a secret, and how it is found where it has more than one spelling


class _Odd:
    """A secret with characters that JSON, Python, HTML, Markdown, addresses and shells spell in ways of their own, also
    one within the other. `run`: the longest part of it that all of them leave as it is."""

    def __init__(self, secret: str) -> None:
        self.run = max("".join(char if _is_same(char) else " " for char in secret).split() or [""], key=len)
        while "\\\\" in secret:
            secret = secret.replace("\\\\", "\\")
        spelled = "".join(map(_spelled, secret))
        self.text, self.data = late.pattern(spelled), late.pattern(spelled.encode("utf-8", "surrogatepass"))


def _is_same(char: str) -> bool:
    return char.isascii() and char.isalnum()


def _spelled(char: str) -> str:
    """An expression for a character of a secret, or for backslashes, however it is spelled. It never tries twice."""
    if _is_same(char):
        return char
    code, in_json = ord(char), char.encode("utf-16-be", "surrogatepass").hex()
    ways = [
        rf"\{char}",
        f"{_SLASH}{{1,{_DEEP}}}".join(f"u{in_json[at : at + 4]}" for at in range(0, len(in_json), 4)),
        f"x{code:02x}|U{code:08x}",
        "".join(f"%(?:25){{0,4}}{byte:02x}" for byte in char.encode("utf-8", "surrogatepass")),
        f"&(?:amp;){{0,4}}(?:#0{{0,4}}{code}|#x0{{0,4}}{code:x}|{_NAMED.get(char, '#')});",
    ]
    if char == "'":  # in a shell it stands between quotes of the other kind
        ways.insert(0, rf"(?:{_SLASH}{{0,4}}(?:['\"]|&(?:amp;){{0,4}}(?:#x27|#39|quot);)){{5}}")
    if char == "\\":
        return f"(?i:{late.possessive('|'.join(ways), f'{{1,{_DEEP}}}')})"
    return rf"(?i:{late.possessive(_SLASH, f'{{0,{_DEEP}}}')}(?:{'|'.join(ways)}))"


def learn(*secrets: str) -> None:
    """From now on these are in no output, whatever they look like."""
    for secret in secrets:
        if len(secret) >= SHORTEST and secret not in _known and not _HUB.fullmatch(secret):
            for text in dict.fromkeys((*_of_addresses(secret), *_pieces(secret))):
                _known[text] = None if all(_is_same(char) or char in _PLAIN for char in text) else _Odd(text)


def _pieces(secret: str) -> list[str]:
    """What of a secret may stand alone: a line of it, a part between two dots."""
    lines = [line.strip() for line in secret.splitlines() if not line.startswith(_FRAME)]
    parts = [part for line in lines for part in (line, *line.split("."))]
    return [part for part in parts if len(part) >= _LONG_PIECE]


def _of_addresses(secret: str) -> set[str]:
    """A secret, and what an address makes of it: lower letters of a host, a password without `%40`."""
    found = {secret, secret.lower()}
    if "%" in secret:
        from urllib.parse import unquote

        found |= {unquote(secret), unquote(secret).lower()}
    return {text for text in found if len(text) >= SHORTEST}


def learn_from(environment: Mapping[str, str]) -> None:
    """The secrets of an environment: variables that are called so, logins in the Hub's and proxies' addresses."""
    learn(*(value for name, value in environment.items() if name.upper().endswith(_VARIABLES)))
    learn(*_logins(value for name, value in environment.items() if name.upper() in _ADDRESSES))


def _logins(addresses: Iterable[str]) -> list[str]:
    found = []
    for address in addresses:
        login, at, _ = address.rpartition("@")
        login = login.partition("://")[2] or login
        found += [login, login.partition(":")[2]] if at else []
    return found


def masked(text: str) -> str:
    """A text to be shown: without secrets that are known, what looks like a token of the Hub, logins and signatures."""
    for secret, odd in tuple(_known.items()):  # another thread may learn one
        if odd is None:
            text = text.replace(secret, _STARS)
        elif odd.run in text:
            text = odd.text.sub(_STARS, text)
    if "hf_" in text or "api_" in text:
        text = _HUB.sub(rf"\1{_STARS}", text)
    if "@" in text and ":" in text:
        text = _LOGIN.sub(rf"\1{_STARS}@", text)
    if ("=" in text or ("%" in text and "%3" in text)) and _may_ask(text):
        text = _QUERY.sub(rf"\1{_STARS}", text)
    return _HEADER.sub(rf"\1 {_STARS}", text) if "earer " in text or "Basic " in text else text


def masked_each(texts: Sequence[str]) -> Sequence[str]:
    """Texts that are to be cut and put together: each masked, as parts of a secret are not known for it."""
    for at in range(0, len(texts), _AT_ONCE):
        joined = "\n".join(texts[at : at + _AT_ONCE])
        if masked(joined) != joined:
            return [*map(masked, texts)]
    return texts


def _may_ask(text: str) -> bool:
    """Whether the name of a query's part may start somewhere; the expression for them takes 1 ms to compile."""
    for mark in _MARKS:
        at = text.find(mark)
        while at >= 0:
            if text[at + len(mark) : at + len(mark) + 1].isalpha():
                return True
            at = text.find(mark, at + 1)
    return False


def holds_secret(data: bytes) -> bool:
    """Whether something in a file is a secret that is known, or looks like a token, a password or a signature."""
    for secret, odd in tuple(_known.items()):
        if secret.encode("utf-8", "surrogatepass") in data:
            return True
        if odd and odd.run.encode() in data and odd.data.search(data):
            return True
    if not (b"hf_" in data or b"api_" in data or b"://" in data or b":\\/\\/" in data):
        return False
    return any(pattern.search(data) for pattern in _IN_FILES)
