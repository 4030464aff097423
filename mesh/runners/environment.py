"""What a child sees of our environment: an allow-list. A child that prints its environment shows its own keys only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mesh.runners.profile import PLAIN_ENVIRONMENT, Profile


def child_environment(
    ours: Mapping[str, str], profile: Profile, extra: Iterable[str], *, home: str | None, marks: Mapping[str, str]
) -> dict[str, str]:
    """The whole environment of a child: a few plain variables, the CLI's own keys, what the registry names, the
    CLI's fixed settings, and our marks."""
    names = (*PLAIN_ENVIRONMENT, *profile.keys, *extra)
    passed = {name: ours[name] for name in names if name in ours}
    if home is not None:
        passed["HOME"] = home
        if profile.home_variable in passed:
            del passed[profile.home_variable]  # it would lead back to the home of whoever started the mesh
    return {"LC_ALL": "C.UTF-8", "GIT_TERMINAL_PROMPT": "0", **passed, **profile.environment, **marks}
