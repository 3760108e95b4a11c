"""The loopback Hub against the real client."""

from __future__ import annotations

import pytest
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from shards import blob, header

from hub import OTHER, OWNER, READER, WRITER, Hub, lost, rate_limited, status

RAW, DATA = header({"a.weight": ("BF16", (4, 4))})
SHARD = blob(RAW, DATA)
INDEX = b'{"metadata": {"total_size": 32}, "weight_map": {"a.weight": "model-00001-of-00001.safetensors"}}'
FILES = {
    "config.json": b'{"a": 1}\n',
    "model-00001-of-00001.safetensors": SHARD,
    "model.safetensors.index.json": INDEX,
    "sub/x.json": b"{}",
}


def api(hub: Hub, token: str | bool = False) -> HfApi:
    return HfApi(endpoint=hub.url, token=token)


def add(text: bytes = b'{"a": 2}\n') -> list[CommitOperationAdd]:
    return [CommitOperationAdd("config.json", text)]


def test_reading(hub: Hub) -> None:
    repo = hub.create("org/m", FILES)
    info = api(hub).model_info("org/m", files_metadata=True)
    assert info.sha == repo.head()
    assert [(s.rfilename, s.size, s.lfs is not None) for s in info.siblings or []] == [
        (name, len(data), name.endswith(".safetensors")) for name, data in FILES.items()
    ]
    assert {file.path for file in api(hub).list_repo_tree("org/m", recursive=True)} == {*FILES, "sub"}
    assert [file.path for file in api(hub).get_paths_info("org/m", ["config.json", "none"])] == ["config.json"]
    assert api(hub).get_safetensors_metadata("org/m").files_metadata["model-00001-of-00001.safetensors"].tensors
    if hasattr(HfApi, "get_sharded_safetensors_metadata"):  # not in huggingface_hub 2.0
        assert list(api(hub).get_sharded_safetensors_metadata("org/m").weight_map) == ["a.weight"]
    path = api(hub).hf_hub_download("org/m", "model-00001-of-00001.safetensors")
    with open(path, "rb") as file:
        assert file.read() == SHARD
    assert [model.id for model in api(hub).list_models(author="org")] == ["org/m"]


def test_errors(hub: Hub) -> None:
    hub.create("org/secret", FILES, private=True)
    hub.create("org/gated", FILES, gated=True)
    with pytest.raises(RepositoryNotFoundError):
        api(hub).model_info("org/none")
    with pytest.raises(RepositoryNotFoundError):
        api(hub, READER).model_info("org/secret")
    assert api(hub, OWNER).model_info("org/secret").private
    with pytest.raises(GatedRepoError):
        api(hub).hf_hub_download("org/gated", "config.json")
    with pytest.raises(RevisionNotFoundError):
        api(hub).model_info("org/gated", revision="none")
    with pytest.raises(RemoteEntryNotFoundError):
        api(hub, OWNER).hf_hub_download("org/gated", "none.json")
    with pytest.raises(HfHubHTTPError, match="Invalid credentials"):
        api(hub, "hf_wrong").model_info("org/gated")
    hub.fault("GET /api/models", rate_limited(7))
    with pytest.raises(HfHubHTTPError, match="Retry after 7 seconds"):
        api(hub).model_info("org/gated")


def test_pull_request(hub: Hub) -> None:
    repo = hub.create("org/m", FILES)
    sha = repo.head()
    made = api(hub, WRITER).create_commit(
        "org/m", add(), commit_message="title", commit_description="text", create_pr=True, parent_commit=sha
    )
    assert (made.pr_num, made.pr_revision) == (1, "refs/pr/1")
    assert repo.files("refs/pr/1")["config.json"].read() == b'{"a": 2}\n'
    assert repo.head() == sha
    assert api(hub).model_info("org/m", revision="refs/pr/1").sha == made.oid
    assert [c.commit_id for c in api(hub).list_repo_commits("org/m", revision="refs/pr/1")] == [made.oid, sha]
    found = api(hub).get_discussion_details("org/m", 1)
    assert (found.title, found.author, found.status) == ("title", "writer", "open")
    assert found.target_branch == "refs/heads/main"
    assert found.events[0].content == "text"
    assert '+{"a": 2}' in str(found.diff)
    assert [d.num for d in api(hub).get_repo_discussions("org/m", author="writer", discussion_status="open")] == [1]
    api(hub, WRITER).edit_discussion_comment("org/m", 1, found.events[0].id, "other text")
    assert repo.pulls[0].description == "other text"
    api(hub, WRITER).create_commit("org/m", add(b"{}"), commit_message="more", revision="refs/pr/1")
    api(hub, OWNER).merge_pull_request("org/m", 1)
    assert repo.files()["config.json"].read() == b"{}"
    assert [d.status for d in api(hub).get_repo_discussions("org/m", discussion_status="closed")] == ["merged"]


def test_who_may_write(hub: Hub) -> None:
    repo = hub.create("org/m", FILES)
    for token, rights in ((READER, "write token"), (WRITER, "required rights")):
        with pytest.raises(HfHubHTTPError, match=rights):
            api(hub, token).create_commit("org/m", add(), commit_message="direct")
    with pytest.raises(HfHubHTTPError):
        api(hub).create_commit("org/m", add(), commit_message="nobody", create_pr=True)
    with pytest.raises(RevisionNotFoundError):
        api(hub, WRITER).create_commit("org/m", add(), commit_message="x", create_pr=True, revision=repo.head())
    repo.open_pr("by hand", {"config.json": b"1"}, author="writer")
    with pytest.raises(HfHubHTTPError):
        api(hub, OTHER).create_commit("org/m", add(), commit_message="x", revision="refs/pr/1")
    first = repo.head()
    repo.commit({"config.json": b"2"})
    with pytest.raises(HfHubHTTPError, match="412"):
        api(hub, OWNER).create_commit("org/m", add(), commit_message="x", parent_commit=first)
    assert repo.conflicts(repo.pulls[0]) == ["config.json"]
    assert api(hub, WRITER).create_pull_request("org/m", "a draft").status == "draft"
    assert api(hub, WRITER).change_discussion_status("org/m", 2, "closed").new_status == "closed"


def test_faults(hub: Hub) -> None:
    repo = hub.create("org/m", FILES)
    hub.fault("POST .*/commit/", lost)
    with pytest.raises(Exception, match=r"disconnected|reset"):
        api(hub, WRITER).create_commit("org/m", add(), commit_message="title", create_pr=True)
    assert len(repo.pulls) == 1
    hub.fault("/revision/", status(503))
    with pytest.raises(HfHubHTTPError):
        api(hub).model_info("org/m", revision="main")
    assert hub.count("POST", "/commit/main") == 1
    hub.forget()
    assert (hub.count(), hub.sent) == (0, 0)
