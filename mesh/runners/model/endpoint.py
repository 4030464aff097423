"""Where a model is asked, in which dialect, and which variable holds the key.

- `openai/…`: OpenAI's Responses API; with a `baseUrl` chat completions, which every gateway to OpenAI speaks.
- `anthropic/…`: Anthropic's Messages API, with a `baseUrl` there.
- any other name needs a `baseUrl` and is spoken to as OpenAI-compatible chat completions: `ollama/qwen3`,
  `openrouter/z-ai/glm-5`, `vllm/…`. Only the first part is the provider, the rest is the model's name there.

The key comes from `keyEnv`, by default the provider's name in capitals with `_API_KEY`: `OPENAI_API_KEY`,
`OPENROUTER_API_KEY`. A model of one's own needs none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from mesh.errors import SkillInputError

Dialect = Literal["responses", "chat", "compatible", "anthropic"]
#: Those whose own address is known, with the variable in which their own SDKs look for another one.
ADDRESS_VARIABLES = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}


@dataclass(frozen=True)
class Endpoint:
    """A model at its provider."""

    provider: str
    model: str
    dialect: Dialect
    #: None: the provider's own address.
    base_url: str | None
    key_env: str

    @property
    def needs_key(self) -> bool:
        """Whether nobody answers there without a key: so it is with the providers' own addresses."""
        return self.base_url is None

    @property
    def name(self) -> str:
        """As `provider/model`."""
        return f"{self.provider}/{self.model}"

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return self.base_url or f"{self.provider}'s API"


def endpoint_of(model: str, base_url: str | None = None, key_env: str | None = None) -> Endpoint:
    """The endpoint for a `provider/model`. Raises SkillInputError where it can't be told, or the address is none."""
    provider, _, name = model.partition("/")
    if not provider or not name:
        raise SkillInputError(f"{model!r} is no model: write provider/model, such as anthropic/claude-sonnet-5.")
    if base_url is not None:
        base_url = _checked(base_url)
    elif provider not in ADDRESS_VARIABLES:
        known = " and ".join(ADDRESS_VARIABLES)
        raise SkillInputError(
            f"The address of provider {provider!r} is not known: give runner.baseUrl (known without are {known})."
        )
    if provider == "anthropic" and base_url is not None:
        base_url = base_url.removesuffix("/v1")  # its SDK adds the version itself
    return Endpoint(provider, name, _dialect(provider, base_url), base_url, key_env or default_key_env(provider))


def default_key_env(provider: str) -> str:
    """`openrouter` → `OPENROUTER_API_KEY`."""
    name = re.sub(r"[^A-Z0-9]", "_", provider.upper())
    return f"{'_' if name[:1].isdigit() else ''}{name}_API_KEY"


def _dialect(provider: str, base_url: str | None) -> Dialect:
    if provider == "anthropic":
        return "anthropic"
    if provider == "openai":
        return "chat" if base_url else "responses"
    return "compatible"


def _checked(base_url: str) -> str:
    """The address without a slash at its end. A key in it would be seen by all in the list of processes."""
    try:
        parts = urlsplit(base_url)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        raise SkillInputError("runner.baseUrl is no address: write it as https://host/v1.") from None
    if parts.username is not None or parts.query or parts.fragment:
        raise SkillInputError(
            "runner.baseUrl must hold no user, password or query: everybody on the host could read them. "
            "Name the variable of the key in runner.keyEnv."
        )
    if wrong:
        raise SkillInputError(f"runner.baseUrl {base_url!r} is no address: write it as https://host/v1.")
    return base_url.rstrip("/")
