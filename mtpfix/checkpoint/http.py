"""GET requests to the Hub through huggingface_hub's own session: bounded, counted, repeated where that is worth it.

huggingface_hub gives the session, the token, the user agent and the proxies; the reading of answers is done here, so
that no answer is ever read further than it is needed. Statuses and headers are those of its `utils/_http.py`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from mtpfix.checkpoint.access import Access, is_token
from mtpfix.checkpoint.room import joined
from mtpfix.errors import UnreadableError, UsageError
from mtpfix.frozen import dataclass, replace
from mtpfix.names import shown
from mtpfix.tokens import learn, masked

TIMEOUT = 30.0  # seconds without a byte
HEAD = 60.0  # seconds until an answer begins, redirects included
DEADLINE = 900.0  # seconds for one answer
SLOWEST = 1000.0  # bytes a second, once `HEAD` is over
_MOST_REDIRECTS = 20
_MOST_BESIDE = 1 << 16  # bytes beside a new address that are read
ATTEMPTS = 5
BACKOFF = 0.5  # seconds before the first repetition; doubled with each
MAX_BACKOFF = 8.0
_TURN = 0.02  # seconds between two looks whether another request may go out
MAX_LIMITED = 20  # repetitions after a rate limit, which the Hub itself paces
MAX_WAIT = 330.0  # the Hub's windows are 300 seconds long
_LONGEST_TOLD = 1e6  # seconds that are said to a person
MAX_WRITTEN = 1 << 22  # bytes of the answer to something that is written: a few names
MAX_VALUES = 1_000_000  # of an answer in JSON: a list of 100,000 files
MAX_WIDE_BYTES = 1 << 24  # of one that is not ASCII: Python takes up to four bytes for each character of it
Query = Mapping[str, str] | Sequence[tuple[str, str]]
_AGAIN_STATUS = frozenset({408, 425, 500, 502, 503, 504})
_RATE_LIMIT = re.compile(r'"\w+"\s*;\s*r\s*=\s*0+\s*;\s*t\s*=\s*([0-9]+(?:\.[0-9]+)?)')  # nothing is left
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")
_NO_RANGE = re.compile(r"bytes \*/([0-9]{1,18})")
_SIZE = re.compile(r"[0-9]{1,18}")
_UNCLEAR = "try again; if it stays, the repository or the Hub is at fault"
_HOOKS = threading.Lock()
_LOGIN = "run `hf auth login`, or set HF_TOKEN"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was good: what was asked of its body, its headers, and the file's size where that is known."""

    data: bytes
    headers: Mapping[str, str]
    size: int | None = None


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked for; see `Session.get`."""

    path: str
    query: Query
    span: tuple[int, int] | None
    limit: int
    attempts: int
    counted: bool
    after: bytes

    @property
    def size(self) -> int:
        """How many bytes there will be, 0 where that is not known."""
        return self.limit if self.counted else 0


class StatusError(UnreadableError):
    """The Hub answered with an error that no repetition mends; `status` is that of HTTP."""

    status = 0


class _TooLarge(UnreadableError):
    """An answer has more bytes than it may have."""


class _Again(Exception):
    """Worth another attempt, after `wait` seconds where the Hub said how many; `error` if it was the last."""

    def __init__(self, error: UnreadableError, wait: float | None = None, *, limited: bool = False) -> None:
        super().__init__()
        self.error, self.wait, self.limited = error, wait, limited


class NotInTime(Exception):
    """A call has not come back yet."""


class Pace:
    """How fast an answer comes: one that is slower than any line is not waited for, byte by byte."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._count = 0

    def too_slow(self, count: int) -> bool:
        """Whether it has been, now that so many bytes more have come."""
        self._count += count
        passed = time.monotonic() - self._begin
        return passed > DEADLINE or (passed > HEAD and self._count < SLOWEST * passed)


def in_time(call: Callable[[], Any], seconds: float) -> Any:
    """What a call returns or raises, in a thread of its own; NotInTime where it takes too long.

    The client bounds the time between two bytes alone, so the head of an answer may come one a minute. What it
    returns too late is closed where it can be.
    """
    done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
    late = threading.Event()

    def work() -> None:
        try:
            found = call()
        except BaseException as error:
            done.put((None, error))
        else:
            done.put((found, None))
            if late.is_set():
                _close(found)

    threading.Thread(target=work, name="mtpfix-request", daemon=True).start()
    try:
        value, error = done.get(timeout=seconds)
    except Empty:
        late.set()
        raise NotInTime from None
    if error is not None:
        raise error
    return value


def _close(response: Any) -> None:
    if hasattr(response, "close"):
        response.close()


def _let_go(response: Any) -> None:
    """Leave a redirect. The client itself would read what stands beside the new address to its end; some of that is
    read here too, as a connection is used again only after a whole answer."""
    count = 0
    try:
        for piece in response.iter_raw():
            count += len(piece)
            if count > _MOST_BESIDE:
                break
    finally:
        response.close()


class Session:
    """Requests about one repository. `close` makes whatever still waits give up."""

    def __init__(self, access: Access, subject: str) -> None:
        self._access = access
        self._endpoint = access.hub
        self._subject = subject
        self._headers = _headers(access)
        self._closed = threading.Event()

    @property
    def hub(self) -> str:
        """The Hub's address as it may be shown."""
        return self._access.address

    def close(self) -> None:
        """No request is sent or repeated from now on."""
        self._closed.set()

    def get(
        self,
        path: str,
        *,
        limit: int,
        query: Query = (),
        span: tuple[int, int] | None = None,
        attempts: int = ATTEMPTS,
        counted: bool = False,
        after: bytes = b"",
    ) -> Answer:
        """What the Hub has at a path (quoted here): at most `limit` bytes, of a file only those of `span`.

        counted  `limit`, or the end of `span`, is how long the file is, and that is reckoned with already
        after    what the answer's bytes are put behind

        Raises UnreadableError: refused, too large, not reachable, or broken after all attempts.
        """
        request = _Request(path, query, span, limit, attempts, counted, after)
        stay = self._access.stay
        left = None if stay is None or counted else stay.left
        if stay is None or left is None:
            return self._got(request)
        try:
            found = self._got(replace(request, limit=min(limit, left)))
        except _TooLarge:  # how much it is nobody knows before
            if limit <= left:
                raise
            stay.grow(limit)
            return self._got(request)
        stay.grow(len(found.data))
        return found

    def _got(self, request: _Request) -> Answer:
        tried = limited = 0
        while True:
            try:
                with self._turn():
                    return self._once(request)
            except _Again as again:
                tried, limited = tried + (not again.limited), limited + again.limited
                if tried >= request.attempts or limited > MAX_LIMITED or (again.wait or 0) > MAX_WAIT:
                    raise again.error from None
                self._before_next(again, tried)

    def pieces(self, path: str, start: int, end: int) -> Iterator[bytes]:
        """Bytes [start, end) of the file at a path, as they come; goes on where an answer broke off.

        Raises UnreadableError as `get` does; attempts count anew with every piece that has come.
        """
        tried = limited = 0
        while start < end:
            self._pause(self._access.traffic.pause)
            try:
                for piece in self._range(path, (start, end)):
                    start, tried = start + len(piece), 0
                    yield piece
            except _Again as again:
                tried, limited = tried + (not again.limited), limited + again.limited
                if tried >= ATTEMPTS or limited > MAX_LIMITED or (again.wait or 0) > MAX_WAIT:
                    raise again.error from None
                self._before_next(again, tried)

    def _range(self, path: str, span: tuple[int, int]) -> Iterator[bytes]:
        with self._answered(path, {}, span) as response:
            if not 200 <= response.status_code < 300:
                raise self._refused(response, path)
            headers = {key.lower(): value for key, value in response.headers.items()}
            at, end, _ = self._placed(response.status_code, headers, span, path)
            for piece in self._until(response.iter_raw()):
                part = piece[max(0, span[0] - at) : max(0, span[1] - at)]
                at += len(piece)
                if part:
                    yield part
                if at >= end:
                    break
            if at < span[1]:
                raise _Again(self._fault(f"{path}: the answer ended before byte {span[1]}"))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait until a request may go out; count it as under way."""
        traffic, well = self._access.traffic, False
        self._pause(traffic.pause)
        while not traffic.begin():
            self._pause(max(_TURN, traffic.pause))
        try:
            yield
            well = True
        finally:
            traffic.end(well=well)

    def _before_next(self, again: _Again, tried: int) -> None:
        wait = again.wait if again.wait is not None else min(BACKOFF * 2 ** max(0, tried - 1), MAX_BACKOFF)
        if again.limited:  # holds for every thread
            self._access.traffic.hold(wait)
        else:
            self._pause(wait)

    def _pause(self, seconds: float) -> None:
        if seconds > 0:
            self._access.traffic.waiting = seconds
            self._closed.wait(seconds)
            self._access.traffic.waiting = 0.0
        if self._closed.is_set():
            raise UnreadableError(
                f"{self._subject}: stopped",
                subject=self._subject,
                hint="another file of it could not be read; run it again",
            )

    def _once(self, request: _Request) -> Answer:
        with self._answered(request.path, request.query, request.span) as response:
            return self._read(response, request)

    @contextmanager
    def _answered(self, path: str, query: Query, span: tuple[int, int] | None) -> Iterator[Any]:
        """An answer as it begins; what fails while it is read is told as what fails before."""
        from huggingface_hub import get_session
        from huggingface_hub.errors import OfflineModeIsEnabled

        session: Any = get_session()
        errors = sys.modules[type(session).__module__.partition(".")[0]]  # httpx, httpx2: it depends on the release
        headers = dict(self._headers)
        if span is not None:
            headers |= {"range": f"bytes={span[0]}-{span[1] - 1}", "accept-encoding": "identity"}
        url = self._endpoint + quote(path, safe="/%")
        try:
            asked = session.build_request("GET", url, params=dict(query) or None, headers=headers, timeout=TIMEOUT)
            response = self._begun(session, asked)
            try:
                yield response
            finally:
                response.close()
                self._access.traffic.add(received=response.num_bytes_downloaded)
        except OfflineModeIsEnabled:
            raise self._fault("offline mode is on (HF_HUB_OFFLINE)", "unset it, or give a folder or bundle") from None
        except (errors.HTTPError, errors.InvalidURL, OSError, UnicodeError) as error:  # the last: a host that is none
            raise self._failed(error, errors) from None

    def _begun(self, session: Any, asked: Any) -> Any:
        """The answer to a request, redirects followed, as far as its head."""

        def followed() -> Any:
            request = asked
            for _ in range(_MOST_REDIRECTS):
                self._access.traffic.add(requests=1)
                response = session.send(request, stream=True, follow_redirects=False)
                if response.next_request is None:
                    return response
                _let_go(response)
                request = response.next_request
            raise self._fault("the Hub leads from address to address without end", "check HF_ENDPOINT")

        try:
            return in_time(followed, HEAD)
        except NotInTime:
            raise self._fault("the answer took too long to begin", "try again later") from None

    def _read(self, response: Any, request: _Request) -> Answer:
        path, span = request.path, request.span
        headers = {key.lower(): value for key, value in response.headers.items()}
        if response.status_code == 416 and span is not None:  # the file ends before the range begins
            told = _NO_RANGE.fullmatch(headers.get("content-range", ""))
            return Answer(request.after, headers, int(told[1]) if told else None)
        if not 200 <= response.status_code < 300:
            raise self._refused(response, path)
        if wait := _used_up(headers):
            self._access.traffic.hold(min(wait, MAX_WAIT))
        if span is None:
            data = joined(self._limited(response.iter_bytes(), request.limit, path), request.size)
            return Answer(data, headers, len(data))
        if headers.get("content-encoding", "identity") != "identity":
            raise _Again(self._fault(f"{path}: a range came compressed"))
        start, end, size = self._placed(response.status_code, headers, span, path)
        before = request.after if start == span[0] else b""
        length = len(before) + end - start if request.counted else 0
        data = joined(_as_far_as(end - start, self._until(response.iter_raw())), length, before)
        count = len(data) - len(before)
        if size is None and response.status_code == 200:  # the whole of a short file, of a length not told before
            size = start + count if count < end - start else None
        elif count < end - start:
            raise _Again(self._fault(f"{path}: the answer ended after {count} of {end - start} bytes"))
        return Answer(data if start == span[0] else request.after + data[span[0] - start :], headers, size)

    def _placed(
        self, status: int, headers: Mapping[str, str], span: tuple[int, int], path: str
    ) -> tuple[int, int, int | None]:
        """From which byte of the file to which the answer is of use, and the file's size."""
        if status != 206:  # the whole file: it is cut off after what is needed
            size = int(headers["content-length"]) if _SIZE.fullmatch(headers.get("content-length", "")) else None
            return 0, span[1] if size is None else min(span[1], size), size
        place = _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))
        if place is None or int(place[1]) != span[0]:
            raise _Again(self._fault(f"{path}: the answer is another range than was asked for"))
        return span[0], min(span[1], int(place[2]) + 1), None if place[3] == "*" else int(place[3])

    def _limited(self, pieces: Iterator[bytes], limit: int, path: str) -> Iterator[bytes]:
        count = 0
        for piece in self._until(pieces):
            count += len(piece)
            if count > limit:
                what = f"{self._subject}: {path}: more than the limit of {limit} bytes"
                raise _TooLarge(what, subject=self._subject, hint="look at what wrote it")
            yield piece

    def _until(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        pace = Pace()
        for piece in pieces:
            if self._closed.is_set() or pace.too_slow(len(piece)):
                raise self._fault("the answer took too long", "try again later")
            yield piece

    # What went wrong.

    def _fault(self, what: str, hint: str = _UNCLEAR) -> UnreadableError:
        return UnreadableError(f"{self._subject}: {what}", subject=self._subject, hint=hint)

    def _failed(self, error: Exception, errors: Any) -> Exception:
        """A request without an answer."""
        where = self.hub
        if isinstance(error, errors.TimeoutException):
            return _Again(self._fault(f"{where} does not answer", "try again later"))
        if isinstance(error, errors.ConnectError | errors.ProxyError):
            hint = "check the connection, HF_ENDPOINT and proxies, or the path if a folder here is meant"
            return _Again(self._fault(f"{where} cannot be reached", hint))
        if isinstance(error, errors.NetworkError | errors.RemoteProtocolError | errors.DecodingError):
            return _Again(self._fault(f"{where} broke off its answer"))
        return self._fault(f"{where}: the request failed ({type(error).__name__})", "check HF_ENDPOINT and proxies")

    def _refused(self, response: Any, path: str) -> Exception:
        """An answer that is an error: repeated, or told with what to do about it."""
        status, code = response.status_code, response.headers.get("x-error-code", "")
        if status == 429:
            wait = wait_of(response.headers)
            when = "later" if wait is None or wait > _LONGEST_TOLD else f"in {wait:.0f} seconds"
            hint = f"try again {when}" + ("" if self._authorized else f"; with a token the limit is higher: {_LOGIN}")
            return _Again(self._fault("the Hub's rate limit is reached", hint), wait, limited=wait is not None)
        if status in _AGAIN_STATUS:
            return _Again(self._fault(f"the Hub answers {status}", "try again later"), wait_of(response.headers))
        what, hint = self._told(status, code, path)
        said = self._said(response.headers.get("x-error-message", ""))
        what += f" ({said})" if said and status in (400, 403) else ""
        error = StatusError(f"{self._subject}: {what}", subject=self._subject, hint=hint)
        error.status = status
        return error

    def _told(self, status: int, code: str, path: str) -> tuple[str, str]:
        page = f"{self.hub}/{self._subject}"
        known = self._authorized
        if code == "GatedRepo":
            return "the repository is gated", f"accept its conditions at {page}" + ("" if known else f"; then {_LOGIN}")
        if code == "RevisionNotFound":
            return "no such revision", f"see the branches and tags at {page}/tree/main"
        if code == "EntryNotFound":
            return f"{path}: no such file", "the repository lists a file that it does not hold"
        if status == 403:
            return "access is denied", "check that the token may read this repository"
        if status == 401 and known and code != "RepoNotFound":
            return "the Hub does not accept the token", "log in again: `hf auth login`, or correct HF_TOKEN"
        if status in (401, 404):
            who = "the token may not read it" if known else f"for a private one {_LOGIN}"
            what = "no folder here and no repository on the Hub that can be seen"
            return what, f"check the name; {who}"
        return f"the Hub answers {status}", "check HF_ENDPOINT"

    @property
    def _authorized(self) -> bool:
        return "authorization" in self._headers

    def _said(self, text: str) -> str:
        """The Hub's own words, shortened; it may repeat the token."""
        return shown(masked(text)).strip("'\"") if text else ""


def _as_far_as(end: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The first bytes of the pieces, so many or as many as there are."""
    left = end
    for piece in pieces:
        yield piece[:left]
        left -= len(piece)
        if left <= 0:
            break


def value_of(data: bytes, subject: str) -> Any:
    """What an answer in JSON says, None where it is no JSON.

    Raises UnreadableError for one that would take more room than any needs.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES or (len(data) > MAX_WIDE_BYTES and not data.isascii()):
        what = f"more than {MAX_VALUES:,} values, or than {MAX_WIDE_BYTES:,} bytes that are not ASCII"
        raise UnreadableError(
            f"{subject}: the Hub's answer has {what}",
            subject=subject,
            hint="no repository needs as much: check HF_ENDPOINT",
        )
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def require_client() -> None:
    """Raises UsageError where huggingface_hub cannot be imported, or has no session: it reads variables meanwhile."""
    try:
        urlsplit(os.environ.get("HF_ENDPOINT", "")).port  # noqa: B018  # raises: an older client takes any port
        import huggingface_hub

        huggingface_hub.get_session()
    except (ValueError, ImportError) as error:  # the latter: a proxy of a kind that needs another package
        raise UsageError(
            f"huggingface_hub does not take a variable that is set: {masked(str(error))}",
            subject="environment",
            hint="correct HF_ENDPOINT, another HF_* variable, or that of a proxy (http_proxy, https_proxy, all_proxy)",
        ) from None


def _headers(access: Access) -> dict[str, str]:
    require_client()
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # public, but not in __all__

    from mtpfix import __version__

    headers: dict[str, str] = build_hf_headers(token=access.token, library_name="mtpfix", library_version=__version__)
    token = headers.get("authorization", "").removeprefix("Bearer ")
    learn(token)
    if token and not is_token(token):
        raise UsageError(
            "the token holds characters that no token has", subject="HF_TOKEN", hint="correct HF_TOKEN, or log in again"
        )
    return headers


def _used_up(headers: Mapping[str, str]) -> float:
    """The seconds until the Hub answers again where this answer was the last one of its window, else 0."""
    limits = _RATE_LIMIT.search(headers.get("ratelimit", ""))
    return float(limits[1]) if limits else 0.0


def wait_of(headers: Mapping[str, str]) -> float | None:
    """The seconds that a refusal asks to wait; None where it does not say."""
    if wait := _used_up(headers):
        return wait
    text = headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(text)) if text[:1].isdigit() else parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None


@contextmanager
def metered(access: Access) -> Iterator[None]:
    """Count what this thread asks through huggingface_hub's own functions, and bound how long an answer may be.

    The client itself waits for ever (its session is made with `timeout=None`), and as long as an answer tells it to.
    It raises UnreadableError then.
    """
    from huggingface_hub import get_session

    hooks: dict[str, list[Any]] = get_session().event_hooks
    thread, answers = threading.get_ident(), []

    def asked(request: Any) -> None:
        if threading.get_ident() == thread:
            access.traffic.add(requests=1)
            request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), 2 * TIMEOUT)
            request.headers["accept-encoding"] = "identity"

    def answered(response: Any) -> None:
        if threading.get_ident() == thread:
            answers.append(response)
            _stay(response)
            _bound(response)

    # Lists are replaced, not changed: another thread may be going through them.
    with _HOOKS:
        hooks |= {"request": [*hooks["request"], asked], "response": [*hooks["response"], answered]}
    try:
        yield
    finally:
        with _HOOKS:
            for kind, own in (("request", asked), ("response", answered)):
                hooks[kind] = [hook for hook in hooks[kind] if hook is not own]
        access.traffic.add(received=sum(answer.num_bytes_downloaded for answer in answers))


def _stay(response: Any) -> None:
    """Raises UnreadableError where something that is written would go to another host than it was sent to.

    307 and 308 have the client send it again, files and all; after any other redirect it takes the answer of a host
    that was sent nothing for the Hub's.
    """
    request = response.request
    if request.method in ("GET", "HEAD") or not response.has_redirect_location:
        return
    place = urljoin(str(request.url), response.headers["location"])
    if not _same_host(urlsplit(str(request.url)), urlsplit(place)):
        raise UnreadableError(
            f"the Hub sends what is written on to another host, {masked(urlsplit(place).netloc.rpartition('@')[2])}",
            subject="the Hub",
            hint="if you trust it, set HF_ENDPOINT to it",
        )


def _same_host(one: SplitResult, other: SplitResult) -> bool:
    """Whether two addresses are of one host and port, or the second is the first by HTTPS."""
    if (one.scheme, one.netloc.rpartition("@")[2]) == (other.scheme, other.netloc.rpartition("@")[2]):
        return True
    upgraded = (one.scheme, other.scheme) == ("http", "https")
    return upgraded and one.hostname == other.hostname and one.port in (None, 80) and other.port in (None, 443)


def _bound(response: Any) -> None:
    """Let an answer to something that is written be read no further than it can need, nor wait for longer.

    Raises UnreadableError where it asks to wait for too long, or is compressed though nobody asked for that.
    """
    wait = wait_of(response.headers) if response.status_code in (429, 503) else None
    if (wait or 0.0) > MAX_WAIT:
        raise _endless(f"the Hub wants no request for {wait:.0f} seconds")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise _endless("the Hub's answer is compressed")
    pieces, pace = response.iter_raw, Pace()

    def bounded(*args: Any) -> Iterator[bytes]:
        count = 0
        for piece in pieces(*args):
            count += len(piece)
            if count > MAX_WRITTEN or pace.too_slow(len(piece)):
                raise _endless("the Hub's answer has no end")
            yield piece

    response.iter_raw = bounded


def _endless(what: str) -> UnreadableError:
    return UnreadableError(what, subject="the Hub", hint="try again later; if it stays, check HF_ENDPOINT")
