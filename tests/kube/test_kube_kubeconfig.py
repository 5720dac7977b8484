"""Kubeconfig files: which fields win, where relative paths lead, and how unusable files are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pykueue.kube.kubeconfig import ConfigError, Overrides, effective, impersonation, merged, names, namespace


def config(context: str, server: str, **more: object) -> dict[str, object]:
    """A kubeconfig with one context, cluster and user of the same name."""
    return {
        "current-context": context,
        "contexts": [{"name": context, "context": {"cluster": context, "user": context, **more}}],
        "clusters": [{"name": context, "cluster": {"server": server, "certificate-authority": "ca.crt"}}],
        "users": [{"name": context, "user": {"client-certificate": "me.crt", "client-key": "me.key"}}],
    }


def write(path: Path, content: object) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("just text", "expected a mapping, found a string"),
        ("- a\n- b\n", "expected a mapping, found a list"),
        ("clusters: x\n", "clusters must be a list, found a string"),
        ("contexts: [x]\n", "contexts[0] must be a mapping with a name"),
        ("users: [{name: a, user: b}]\n", "users[0].user must be a mapping, found a string"),
        ("\x00", "cannot be used"),
        ("", "has no current-context"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_refused_with_what_is_wrong_in_one_line(
    tmp_path: Path, content: str, problem: str
) -> None:
    path = write(tmp_path / "config", content)
    with pytest.raises(ConfigError) as refused:
        effective(path, Overrides())
    message = str(refused.value)
    assert message.startswith(f"kubeconfig {path} cannot be used: ")
    assert problem in message
    assert "\n" not in message


def test_the_first_of_several_files_wins_and_paths_are_relative_to_their_file(tmp_path: Path) -> None:
    first = write(tmp_path / "a" / "config", config("one", "https://a"))
    second = write(tmp_path / "b" / "config", {**config("two", "https://b"), "current-context": "two"})
    again = write(tmp_path / "c" / "config", config("one", "https://other"))
    files = ":".join([first, str(tmp_path / "missing"), second, again])
    assert merged(files)["current-context"] == "one"
    assert names(files, "contexts") == ["one", "two"]
    found = effective(files, Overrides())
    cluster = found["clusters"][0]["cluster"]
    assert cluster == {"server": "https://a", "certificate-authority": str(tmp_path / "a" / "ca.crt")}
    user = effective(files, Overrides(context="two"))["users"][0]["user"]
    assert user["client-key"] == str(tmp_path / "b" / "me.key")


def test_flags_replace_fields_of_the_selected_entries(tmp_path: Path) -> None:
    files = write(tmp_path / "config", config("one", "https://a", namespace="team"))
    flags = Overrides(server="https://b", token="t", insecure=True, client_key=str(tmp_path / "k"))
    found = effective(files, flags)
    cluster, user = found["clusters"][0]["cluster"], found["users"][0]["user"]
    assert cluster == {"server": "https://b", "insecure-skip-tls-verify": True}
    assert user["token"] == "t"
    assert user["client-key"] == str(tmp_path / "k")
    assert namespace(files, Overrides()) == "team"
    assert namespace(files, Overrides(namespace="other")) == "other"


def test_a_server_needs_no_kubeconfig(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    found = effective(missing, Overrides(server="http://127.0.0.1:1"))
    assert found["clusters"][0]["cluster"]["server"] == "http://127.0.0.1:1"
    assert namespace(missing, Overrides()) == "default"
    with pytest.raises(ConfigError, match="does not exist"):
        effective(missing, Overrides())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (Overrides(context="x"), 'context "x" does not exist'),
        (Overrides(cluster="x"), 'cluster "x" does not exist'),
        (Overrides(user="x"), 'auth info "x" does not exist'),
    ],
)
def test_what_does_not_exist_is_named(tmp_path: Path, flags: Overrides, message: str) -> None:
    files = write(tmp_path / "config", config("one", "https://a"))
    with pytest.raises(ConfigError, match=message):
        effective(files, flags)


def test_impersonation_is_sent_as_headers() -> None:
    flags = Overrides(
        impersonate="ann",
        impersonate_groups=("a", "b"),
        impersonate_uid="7",
        impersonate_extra=("scopes=x",),
    )
    assert list(flags.headers) == [
        ("Impersonate-User", "ann"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-scopes", "x"),
    ]
    with pytest.raises(ConfigError, match="needs --as"):
        assert Overrides(impersonate_groups=("a",)).headers


def test_impersonation_of_the_kubeconfig_is_sent_unless_flags_replace_it(tmp_path: Path) -> None:
    content = config("one", "https://a")
    (user,) = content["users"]
    user["user"] |= {"as": "ann", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"scopes": ["x"]}}
    found = effective(write(tmp_path / "config", content), Overrides())
    assert list(impersonation(found, Overrides())) == [
        ("Impersonate-User", "ann"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-scopes", "x"),
    ]
    flags = Overrides(impersonate="eva")
    assert list(impersonation(found, flags)) == [("Impersonate-User", "eva")]
    del user["user"]["as"]
    found = effective(write(tmp_path / "config", content), Overrides())
    with pytest.raises(ConfigError, match="need as"):
        impersonation(found, Overrides())
