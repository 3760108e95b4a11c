"""A Hub on a loopback port, for tests and for trying things by hand: `python -m tests.hub FOLDER...`.

It speaks HTTP as the real huggingface_hub client expects it (2.4): repositories with commits and branches, ranges,
redirects of large files to a second origin, the endpoint for all headers, preupload, commits and pull requests,
discussions, `refs/pr/N`, users and their tokens, error codes, rate limits, and answers that are slow, broken or lost.

    with Hub() as hub:                                   # or the fixture `hub` of tests/hub/conftest.py
        repo = hub.create("org/name", folder)            # a folder or {path: bytes | Path}; a commit on main
        os.environ["HF_ENDPOINT"] = hub.url

        repo.commit({"config.json": b"{}", "old.json": None})            # moves main; None deletes; returns the oid
        repo.commit({...}, branch="refs/pr/1", author="someone")         # or another branch, made where there is none
        repo.head("main"), repo.files("refs/pr/1")["config.json"].read() # oid; bytes
        repo.tag("v1", "main")
        repo.open_pr("title", {...}, description="...", author="bot")    # a pull request made by somebody else
        repo.pulls                                       # its pull requests and discussions, oldest first: Discussion
        repo.discussion(1).status = "closed"             # num, title, description, author, status, events, base

        hub.calls                                        # requests: Call(method, path, query, headers, status, sent)
        hub.count("POST", "/commit/")                    # how many, by method and part of the path
        hub.sent                                         # bytes of all answers' bodies
        hub.forget()                                     # empties `calls`

Tokens: READER may read; WRITER, OTHER and OWNER may write; OWNER owns "org". More: `hub.users[token] = User(...)`.
A private or gated repository (`hub.create(..., private=True, gated=True)`) is open to its owner and to the names in
`repo.allowed`. Anyone who may write may open pull requests; only owners commit to branches, authors also to their own
refs/pr/N.

Faults, for the next `times` requests that `pattern` (a regex, searched in "METHOD /path?query") matches:

    hub.fault("GET /api/models/.*", status(503))             an error: status(code, headers, body)
    hub.fault("resolve", rate_limited(2))                     429 with a wait, in Retry-After and in ratelimit headers
    hub.fault("POST .*/commit/", lost)                        the request acts, its answer never comes
    hub.fault("cdn", dropped)                                 the connection closes before anything happens
    hub.fault("cdn", cut(100))                                the answer ends after 100 bytes of its body
    hub.fault("cdn", whole)                                   a range is answered by 200 and the whole file
    hub.fault("resolve", slow(0.5))                           the answer comes late
    hub.fault("resolve", body(b"..."))                        200 with other bytes
    hub.fault("resolve", before(lambda: repo.commit(...)))    something happens first: a branch moves, say

`hub.limit = Limit(requests=10, seconds=1.0)` limits all requests together. `hub.metadata = False` turns the endpoint
for all headers off (404), `hub.redirects = False` serves large files without a redirect,
`hub.sizes = False` lists files by their names only, as a plain mirror does, `hub.longest = 500` answers ranges with no
more bytes than that. All can be set at any time.
"""

from .faults import before, body, cut, dropped, lost, rate_limited, slow, status, whole
from .repositories import Commit, Content, Discussion, Repository
from .server import OTHER, OWNER, READER, WRITER, Call, Hub, Limit, User

__all__ = [
    "OTHER",
    "OWNER",
    "READER",
    "WRITER",
    "Call",
    "Commit",
    "Content",
    "Discussion",
    "Hub",
    "Limit",
    "Repository",
    "User",
    "before",
    "body",
    "cut",
    "dropped",
    "lost",
    "rate_limited",
    "slow",
    "status",
    "whole",
]
