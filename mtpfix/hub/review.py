"""A pull request of anybody, read from the Hub and set against the branch that it goes to."""

from __future__ import annotations

from collections.abc import Sequence

from mtpfix.analysis import Scope, repaired
from mtpfix.checkpoint.access import Access
from mtpfix.checkpoint.hub import Repository, Tree, read_hub
from mtpfix.checkpoint.jsonfiles import NAMES
from mtpfix.checkpoint.reading import read_checkpoint
from mtpfix.errors import UnreadableError
from mtpfix.frozen import dataclass, replace
from mtpfix.hub.remote import Listed, PullRequest, Remote
from mtpfix.model import Checkpoint, Source
from mtpfix.review import Review, review


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A pull request, the commits that were set against each other, and what came of it."""

    pull_request: Listed
    base: str
    head: str
    review: Review


def review_pull_request(
    source: Source, num: int, access: Access, *, engines: Sequence[str] = (), scope: Scope = "mtp"
) -> Reviewed:
    """What merging a pull request would change; `source.revision`: the branch, if not the default one.

    Raises UnreadableError where there is no such pull request, or where what it would make is no checkpoint.
    """
    repo = source.id
    remote = Remote(repo, access)
    found = remote.pull_request(num)
    with Repository(source, replace(access, revision=None)) as files:
        before = read_checkpoint(files.source, files)
        files.keep()
        base = files.tree
    head = remote.tree(found.ref)
    touched = _touched(found, base, head)
    new = remote.contents(head, [name for name in touched if name in NAMES])
    old = {name: before.files[name].raw for name in touched if name in before.files}
    names = tuple(name for name in touched if name not in NAMES or old.get(name) != new.get(name))
    try:
        after = _merged(before, found, names, new, access)
    except UnreadableError as error:
        raise UnreadableError(
            f"{repo}: with pull request {num}: {error}", subject=repo, hint="it must not be merged"
        ) from None
    changed = {name: (old.get(name), new.get(name)) for name in names}
    return Reviewed(
        found.listed, base.commit, head.commit, review(before, after, changed, engines=engines, scope=scope)
    )


def _touched(found: PullRequest, base: Tree, head: Tree) -> tuple[str, ...]:
    """The files that merging may change: what the pull request touches and the branch does not hold already.

    A Hub that does not hash its files, or hashes them its own way, says nothing of the JSON files: those are compared.
    """
    names = sorted(set(found.files) or {*base.files, *head.files})
    return tuple(name for name in names if name in NAMES or base.files.get(name) != head.files.get(name))


def _merged(
    before: Checkpoint, found: PullRequest, names: Sequence[str], new: dict[str, bytes], access: Access
) -> Checkpoint:
    """The checkpoint after merging; the weights are read again only where the pull request touches them."""
    if all(name in new or not _is_read(name) for name in names):
        return repaired(before, new)
    return read_hub(Source("hub", before.source.id, found.ref), replace(access, revision=None))


def _is_read(name: str) -> bool:
    return name in NAMES or name.endswith((".safetensors", ".safetensors.index.json"))
