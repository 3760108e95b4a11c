"""How the Hub is asked, and what that has cost so far. Costs nothing to import."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import Lock

from mtpfix.checkpoint.room import Stay
from mtpfix.errors import UsageError
from mtpfix.frozen import dataclass, field
from mtpfix.tokens import learn

ENDPOINT = "https://huggingface.co"


class Traffic:
    """Requests and bytes so far, and how far reading has come; safe to look at from another thread.

    A copy in another process, which pickling makes, begins at zero.

    requests  sent, redirects and repetitions included
    received  bytes of answers' bodies, as they came over the wire
    files     files that are read, `wanted` of them are known to be needed
    waiting   seconds that the Hub has asked to wait; 0 when it has not
    talking   about a pull request: how much there is to do is not known
    scanned   repositories that are done, of `listed` ones, where many are scanned
    """

    def __init__(self, holder: Traffic | None = None) -> None:
        """`holder`: whose pauses hold here too."""
        self.requests = 0
        self.received = 0
        self.files = 0
        self.wanted = 0
        self.waiting = 0.0
        self.talking = False
        self.scanned = 0
        self.listed = 0
        self._holder = holder or self
        self._lock = Lock()
        self._large = Lock()
        self._not_before = 0.0
        self._under_way = 0
        self._room = float("inf")  # requests under way at once that the Hub has stood lately

    def __reduce__(self) -> tuple[type[Traffic], tuple[()]]:
        return Traffic, ()

    @property
    def busy(self) -> bool:
        """Whether the Hub is being read."""
        if self.listed:
            return self.scanned < self.listed
        return self.talking or (self.requests > 0 and (self.files < self.wanted or not self.wanted or self.waiting > 0))

    @property
    def pause(self) -> float:
        """Seconds until the Hub wants the next request, from whatever thread; 0 or less where it may come now."""
        return self._holder._not_before - time.monotonic()

    def hold(self, seconds: float) -> None:
        """The Hub wants no request for so long, and then fewer at once: half of them, one at least."""
        holder, now = self._holder, time.monotonic()
        with holder._lock:
            if now >= holder._not_before:  # not where a whole crowd is refused: they went out together
                holder._room = max(1.0, min(holder._room, holder._under_way) // 2)
            holder._not_before = max(holder._not_before, now + seconds)

    def stay(self) -> Stay:
        """For a repository that is read beside others."""
        return Stay(self._holder._large)

    def begin(self) -> bool:
        """Count a request as under way, where one more may be; `end` takes it back."""
        holder = self._holder
        with holder._lock:
            free = holder._under_way < holder._room
            holder._under_way += free
        return free

    def end(self, *, well: bool) -> None:
        """A request is over. Where it went well a few more may be under way."""
        holder = self._holder
        with holder._lock:
            holder._under_way -= 1
            if well:
                holder._room += 1 / holder._room

    def add(self, *, requests: int = 0, received: int = 0, files: int = 0, wanted: int = 0) -> None:
        """Count."""
        with self._lock:
            self.requests += requests
            self.received += received
            self.files += files
            self.wanted += wanted


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Access:
    """What a reader of a Hub repository brings along.

    revision  branch, tag, commit or refs/pr/N; None: what the source itself says, else main
    token     None: HF_TOKEN or the stored login
    traffic   where requests and bytes are counted
    endpoint  None: HF_ENDPOINT, else the public Hub
    forks     a large checkpoint on a disk may be read by two processes: the program is mtpfix's own
    meanwhile what else this one has to do while the other one begins
    stay      of a repository that is read beside others
    """

    revision: str | None = None
    token: str | None = field(default=None, repr=False)
    traffic: Traffic = field(default_factory=Traffic, compare=False)
    endpoint: str | None = None
    forks: bool = False
    meanwhile: Callable[[], object] = field(default=_nothing, repr=False, compare=False)
    stay: Stay | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.token is not None:
            learn(self.token)
        if self.token is not None and not is_token(self.token):
            raise UsageError(
                "the token holds characters that no token has",
                subject="--token",
                hint="give it as https://huggingface.co/settings/tokens shows it, or run `hf auth login`",
            )

    @property
    def hub(self) -> str:
        """The Hub's address, without a slash at its end."""
        return (self.endpoint or os.environ.get("HF_ENDPOINT", "")).rstrip("/") or ENDPOINT

    @property
    def address(self) -> str:
        """The Hub's address as it may be shown: without a name and a password in it."""
        scheme, colon, rest = self.hub.rpartition("://")
        return f"{scheme}{colon}{rest.rpartition('@')[2]}"


def is_token(text: str) -> bool:
    """Whether a text can be sent as a token at all."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text
