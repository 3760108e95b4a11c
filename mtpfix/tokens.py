"""What must not be shown: tokens, passwords and signatures, wherever they stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
# Variables whose value is a secret by their name: HF_TOKEN, GITHUB_TOKEN, AWS_SECRET_ACCESS_KEY, MTPFIX_CHECK_TOKEN.
_VARIABLES = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "ACCESS_KEY", "PRIVATE_KEY")
_ADDRESSES = ("HF_ENDPOINT", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")

_known: dict[str, None] = {}


def learn(*secrets: str) -> None:
    """From now on these are in no output, whatever they look like."""
    for secret in secrets:
        if len(secret) >= SHORTEST and secret not in _known and not _HUB.fullmatch(secret):
            _known.update(dict.fromkeys(sorted(_spellings(secret), key=len, reverse=True)))


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


def _spellings(secret: str) -> set[str]:
    """A secret as Python, JSON, HTML and addresses write it, and as a host's name."""
    found = {secret, secret.lower()}
    if all(char.isalnum() or char in _PLAIN for char in secret):
        return found
    import html
    import json
    from urllib.parse import quote, unquote

    in_json = json.dumps(secret)[1:-1]
    return found | {
        in_json,
        repr(secret)[1:-1],
        html.escape(secret),
        quote(secret, safe=""),
        quote(secret),
        unquote(secret),
    }


def masked(text: str) -> str:
    """A text to be shown: without secrets that are known, what looks like a token of the Hub, logins and signatures."""
    for secret in _known:
        if secret in text:
            text = text.replace(secret, _STARS)
    if "hf_" in text or "api_" in text:
        text = _HUB.sub(rf"\1{_STARS}", text)
    if "@" in text and ":" in text:
        text = _LOGIN.sub(rf"\1{_STARS}@", text)
    if ("=" in text or "%3" in text) and _may_ask(text):
        text = _QUERY.sub(rf"\1{_STARS}", text)
    return _HEADER.sub(rf"\1 {_STARS}", text) if "earer " in text or "Basic " in text else text


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
    if any(secret.encode("utf-8", "surrogatepass") in data for secret in _known):
        return True
    if not (b"hf_" in data or b"api_" in data or b"://" in data or b":\\/\\/" in data):
        return False
    return any(pattern.search(data) for pattern in _IN_FILES)
