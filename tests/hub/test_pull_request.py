"""Pull requests over HTTP with the real client: opened once, whatever happens on the way."""

from __future__ import annotations

import gzip
import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import tiny

from hub import OTHER, READER, WRITER, Hub, Repository, before, body, dropped, lost, rate_limited, slow, status
from hub.faults import Fault
from hub.server import Handler
from mtpfix.checkpoint import http
from mtpfix.checkpoint.access import Access
from mtpfix.checkpoint.local import read_local
from mtpfix.errors import MtpfixError, UsageError, WriteError
from mtpfix.hub import pull_request
from mtpfix.hub.describe import fingerprint, marks
from mtpfix.hub.pull_request import Draft, Outcome, Wish, draft, propose
from mtpfix.hub.remote import Remote, token_or_refusal
from mtpfix.model import Source

REPO = "org/name"
NAMES = ("config.json", "hf_quant_config.json")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_request, "_WAITS", (0.0, 0.0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny.qwen3_next(tmp_path / "checkpoint", "mtp.layers.0*")


@pytest.fixture
def repo(hub: Hub, folder: Path) -> Repository:
    return hub.create(REPO, folder)


def drafted(repo: Repository, folder: Path, **more: object) -> Draft:
    """The draft of what main holds now; the weights are the folder's."""
    for name in NAMES:
        (folder / name).write_bytes(repo.files()[name].read())
    checkpoint = replace(read_local(folder), source=Source("hub", repo.id, repo.head()))
    return draft(Wish(checkpoint, ("vllm==0.24.0",), **more))  # type: ignore[arg-type]


def run(repo: Repository, folder: Path, token: str = WRITER, **more: object) -> Outcome:
    return propose(Remote(repo.id, Access(token=token)), drafted(repo, folder, **more))


def test_one_pull_request_with_both_files_on_the_checked_commit(repo: Repository, folder: Path, hub: Hub) -> None:
    wanted = drafted(repo, folder)
    outcome = propose(Remote(REPO, Access(token=WRITER)), wanted)
    assert (outcome.kind, outcome.revision, outcome.after.status) == ("opened", repo.head(), "clean")
    (pull,) = repo.pulls
    assert outcome.pull_request is not None
    assert outcome.pull_request.url == f"{hub.url}/{REPO}/discussions/{pull.num}"
    assert (pull.title, pull.author) == (wanted.text.title, "writer")
    assert marks(pull.description) == (fingerprint(wanted.before.plan),)
    head = repo.commits[repo.head(pull.ref)]
    assert head.parent == repo.head()
    changed = {name: c.read() for name, c in head.files.items() if c != repo.files()[name]}
    assert changed == dict(wanted.files)
    assert set(changed) == set(NAMES)
    assert hub.count("POST", "/commit/") == 1


def test_the_weights_are_not_read(repo: Repository, folder: Path, hub: Hub) -> None:
    run(repo, folder)
    assert not hub.count("", "safetensors")
    assert hub.count() <= 10


def test_again_is_reported_whoever_asks(repo: Repository, folder: Path, hub: Hub) -> None:
    run(repo, folder)
    for token in (WRITER, OTHER):
        hub.forget()
        outcome = run(repo, folder, token)
        assert outcome.kind == "already-open"
        assert outcome.pull_request is not None
        assert (outcome.pull_request.num, outcome.pull_request.author) == (1, "writer")
        assert hub.count("POST") == 0


def test_the_same_repair_by_hand_is_found_by_what_it_holds(repo: Repository, folder: Path) -> None:
    repo.open_pr("fix", dict(drafted(repo, folder).files), author="human")
    assert run(repo, folder).kind == "already-open"


def test_another_repair_of_the_same_faults_is_found(repo: Repository, folder: Path) -> None:
    changes = {}
    for name, path in (("config.json", "quantization_config.ignore"), (NAMES[1], "quantization.exclude_modules")):
        value = json.loads(repo.files()[name].read())
        outer, inner = path.split(".")
        value[outer][inner].append("mtp*")
        changes[name] = json.dumps(value).encode()
    repo.open_pr("exclude all of it", changes, author="human")
    assert run(repo, folder).kind == "already-open"


@pytest.mark.parametrize(
    ("files", "text"),
    [({"README.md": b"# hello"}, ""), ({"config.json": b"{}"}, ""), ({"config.json": b"{"}, ""), ({}, "discussed")],
)
def test_other_pull_requests_do_not_count(repo: Repository, folder: Path, files: dict[str, bytes], text: str) -> None:
    wanted = drafted(repo, folder)
    repo.open_pr(wanted.text.title, files, author="human", description=text)
    assert run(repo, folder).kind == "opened"


def test_a_fingerprint_without_the_repair_does_not_count(repo: Repository, folder: Path) -> None:
    body = drafted(repo, folder).text.body
    repo.open_pr("bogus", {"README.md": b"x"}, author="human", description=body)
    assert run(repo, folder).kind == "opened"


def test_an_own_stale_one_is_updated(repo: Repository, folder: Path, hub: Hub) -> None:
    run(repo, folder)
    value = json.loads(repo.files()["config.json"].read())
    repo.commit({"config.json": json.dumps({**value, "rope_theta": 5}, indent=2).encode()})
    wanted = drafted(repo, folder)
    outcome = propose(Remote(REPO, Access(token=WRITER)), wanted)
    assert outcome.kind == "updated"
    assert [pull.num for pull in repo.pulls] == [1]
    assert {name: repo.files("refs/pr/1")[name].read() for name in NAMES} == dict(wanted.files)
    assert run(repo, folder).kind == "already-open"


def test_a_new_fingerprint_is_told_in_a_comment(repo: Repository, folder: Path) -> None:
    run(repo, folder)
    value = json.loads(repo.files()["config.json"].read())
    value["quantization_config"]["ignore"].remove("mtp.layers.0*")
    repo.commit({"config.json": json.dumps(value, indent=2).encode()})
    wanted = drafted(repo, folder)
    assert propose(Remote(REPO, Access(token=WRITER)), wanted).kind == "updated"
    told = Remote(REPO).pull_request(1).fingerprints
    assert wanted.text.fingerprint in told
    assert len(told) == 2


def test_a_stale_one_of_another_is_left_alone(repo: Repository, folder: Path) -> None:
    run(repo, folder, OTHER)
    value = json.loads(repo.files()["config.json"].read())
    repo.commit({"config.json": json.dumps({**value, "rope_theta": 5}, indent=2).encode()})
    assert run(repo, folder).kind in ("already-open", "opened")
    assert repo.commits[repo.head("refs/pr/1")].author == "other"


def test_a_closed_one_stops_it_unless_forced(repo: Repository, folder: Path, hub: Hub) -> None:
    run(repo, folder, OTHER)
    repo.pulls[0].status = "closed"
    refused = run(repo, folder)
    assert refused.kind == "refused"
    assert refused.pull_request is not None
    assert refused.pull_request.num == 1
    assert run(repo, folder, force=True).kind == "opened"
    assert [pull.num for pull in repo.pulls] == [1, 2]


def test_a_merged_one_leaves_nothing_to_do(repo: Repository, folder: Path, hub: Hub) -> None:
    run(repo, folder)
    repo.merge(repo.pulls[0], "owner")
    hub.forget()
    assert run(repo, folder).kind == "already-fixed"
    assert hub.count("POST") == 0


@pytest.mark.parametrize("value", [[], 7, "x", {}, {"files": 3}, {"files": [7]}, {"files": [{"path": "x"}]}, None])
@pytest.mark.parametrize("place", ["preupload", "commit/"])
def test_an_answer_that_is_none_of_the_hubs(
    repo: Repository, folder: Path, hub: Hub, place: str, value: object
) -> None:
    """The client reads them without looking: KeyError, TypeError, AttributeError. Of a commit it says nothing: the
    list of pull requests does."""
    hub.fault(f"POST .*/{place}", body(json.dumps(value).encode()), 9)
    with pytest.raises(WriteError, match="answer"):
        run(repo, folder)
    assert not repo.pulls


def endless(handler: Handler, _go: object) -> None:
    """A body that goes on until nobody reads it any more, for 200 MB at most."""
    handler.stream(200, 200 << 20, (b" " * (1 << 20) for _ in range(200)), {})


@pytest.mark.parametrize("place", ["preupload", "commit/"])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (endless, "no end"),
        (body(gzip.compress(b"{}"), {"Content-Encoding": "gzip"}), "compressed"),
        (rate_limited(999_999), "no request for 999999 seconds"),
        (rate_limited(999_999, ratelimit=False), "no request for 999999 seconds"),
        (status(503, {"Retry-After": "999999"}), "no request for 999999 seconds"),
    ],
)
def test_a_hub_that_keeps_one_for_ever(
    repo: Repository, folder: Path, hub: Hub, place: str, fault: Fault, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own client reads all that comes, unpacks it, and sleeps for as long as it is told to."""
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("slept") if seconds > 100 else None)
    hub.fault(f"POST .*/{place}", fault, 9)
    with pytest.raises(WriteError, match=said):
        run(repo, folder)
    assert not repo.pulls


def test_a_lost_answer_makes_no_second_one(repo: Repository, folder: Path, hub: Hub) -> None:
    hub.fault("POST .*/commit/", lost)
    outcome = run(repo, folder)
    assert outcome.kind == "opened"
    assert [pull.num for pull in repo.pulls] == [1]
    assert hub.count("POST", "/commit/") == 1


@pytest.mark.parametrize("fault", [dropped, status(503), status(500)])
def test_a_commit_that_never_happened_is_an_error(repo: Repository, folder: Path, hub: Hub, fault: object) -> None:
    hub.fault("POST .*/commit/", fault)  # type: ignore[arg-type]
    with pytest.raises(WriteError):
        run(repo, folder)
    assert not repo.pulls
    assert run(repo, folder).kind == "opened"


def test_a_commit_that_is_put_off_is_sent_again(repo: Repository, folder: Path, hub: Hub) -> None:
    hub.fault("POST .*/(commit|preupload)/", rate_limited(0.1), 2)
    assert run(repo, folder).kind == "opened"
    assert len(repo.pulls) == 1


def test_a_commit_without_an_answer_is_looked_for(
    repo: Repository, folder: Path, monkeypatch: pytest.MonkeyPatch, hub: Hub
) -> None:
    monkeypatch.setattr(http, "TIMEOUT", 0.2)
    hub.fault("POST .*/commit/", slow(1.0))
    monkeypatch.setattr(pull_request, "_WAITS", (0.0, 1.5))
    assert run(repo, folder).kind == "opened"
    assert len(repo.pulls) == 1


@pytest.mark.parametrize("what", ["whoami", "diff"])
def test_hubs_that_tell_less(repo: Repository, folder: Path, hub: Hub, what: str) -> None:
    repo.open_pr("fix", dict(drafted(repo, folder).files), author="human")
    if what == "whoami":
        hub.fault("whoami", status(404), float("inf"))
    else:
        hub.fault("discussions/1", body(json.dumps({"num": 1, "status": "open", "changes": {}}).encode()))
    assert run(repo, folder).kind == "already-open"


def test_one_for_another_branch_does_not_count(repo: Repository, folder: Path) -> None:
    repo.commit({}, branch="dev")
    wanted = drafted(repo, folder)
    repo.open_pr(wanted.title, dict(wanted.files), description=wanted.text.body, base="dev")
    assert run(repo, folder).kind == "opened"


def test_more_pull_requests_than_a_page_holds(repo: Repository, folder: Path) -> None:
    run(repo, folder, OTHER)
    for number in range(60):
        repo.discuss(f"question {number}", "why?", "somebody")
        repo.open_pr(f"other {number}", {"README.md": b"%d" % number}).status = "closed"
    assert run(repo, folder).kind == "already-open"


def test_of_two_bots_at_the_same_moment_one_wins(repo: Repository, folder: Path, hub: Hub) -> None:
    wanted = drafted(repo, folder)

    def other() -> None:
        repo.open_pr(wanted.title, dict(wanted.files), description=wanted.text.body, author="other")

    hub.fault("POST .*/commit/", before(other))
    outcome = propose(Remote(REPO, Access(token=WRITER)), wanted)
    assert outcome.kind == "already-open"
    assert [pull.num for pull in repo.pulls if pull.status == "open"] == [1]


@pytest.mark.parametrize("second", [WRITER, OTHER])
def test_bots_in_a_race(repo: Repository, folder: Path, second: str) -> None:
    wanted = drafted(repo, folder)
    outcomes: list[Outcome] = []
    gate = threading.Barrier(4)

    def bot(token: str) -> None:
        gate.wait()
        outcomes.append(propose(Remote(REPO, Access(token=token)), wanted))

    threads = [threading.Thread(target=bot, args=(token,)) for token in (WRITER, second) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcome.kind for outcome in outcomes) == ["already-open"] * 3 + ["opened"]
    assert len([pull for pull in repo.pulls if pull.status == "open"]) == 1


def test_a_branch_that_moved_does_not_move_what_was_checked(repo: Repository, folder: Path) -> None:
    wanted = drafted(repo, folder)
    repo.commit({"config.json": b"{}"})
    assert propose(Remote(REPO, Access(token=WRITER)), wanted).kind == "opened"
    assert repo.commits[repo.head("refs/pr/1")].parent == wanted.before.source.revision


def test_one_that_somebody_else_worked_on_is_not_overwritten(repo: Repository, folder: Path) -> None:
    run(repo, folder)
    value = json.loads(repo.files("refs/pr/1")["config.json"].read())
    theirs = json.dumps({**value, "rope_theta": 5}).encode()
    repo.commit({"config.json": theirs}, branch="refs/pr/1", author="owner")
    assert run(repo, folder).kind == "already-open"
    assert repo.files("refs/pr/1")["config.json"].read() == theirs


def test_what_arrives_otherwise_is_told(repo: Repository, folder: Path, hub: Hub) -> None:
    hub.fault("GET .*revision/refs%2Fpr%2F1", before(lambda: repo.commit({"config.json": b"{}"}, branch="refs/pr/1")))
    with pytest.raises(WriteError, match="does not hold what was sent"):
        run(repo, folder)


def test_no_token_is_said_before_any_request(hub: Hub) -> None:
    with pytest.raises(UsageError, match="needs a token"):
        token_or_refusal(None)
    assert hub.count() == 0


@pytest.mark.parametrize("token", [READER, "hf_nobody"])
def test_a_token_that_cannot_write_is_refused_before_anything_is_sent(
    repo: Repository, folder: Path, hub: Hub, token: str
) -> None:
    with pytest.raises(MtpfixError) as caught:
        run(repo, folder, token)
    assert caught.value.exit_code == 3
    assert token not in str(caught.value) + caught.value.hint
    assert hub.count("POST") == 0


@pytest.mark.parametrize("code", [401, 403, 404, 429])
def test_refusals_of_the_hub_are_errors_without_the_token(repo: Repository, folder: Path, hub: Hub, code: int) -> None:
    hub.fault("POST .*/commit/", status(code, text=json.dumps({"error": f"no, {WRITER}"}).encode()))
    with pytest.raises(MtpfixError) as caught:
        run(repo, folder)
    assert WRITER not in str(caught.value) + caught.value.hint
    assert not repo.pulls
