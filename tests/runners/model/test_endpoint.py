from __future__ import annotations

import pytest

from mesh.errors import SkillInputError
from mesh.runners.model.endpoint import endpoint_of


@pytest.mark.parametrize(
    ("model", "base_url", "dialect", "key_env", "needs_key"),
    [
        ("openai/gpt-5", None, "responses", "OPENAI_API_KEY", True),
        ("openai/gpt-5", "https://gateway/v1", "chat", "OPENAI_API_KEY", False),
        ("anthropic/claude-sonnet-5", None, "anthropic", "ANTHROPIC_API_KEY", True),
        ("openrouter/z-ai/glm-5", "https://openrouter.ai/api/v1", "compatible", "OPENROUTER_API_KEY", False),
        ("my-gpu_2/qwen3:4b", "http://127.0.0.1:8080/v1", "compatible", "MY_GPU_2_API_KEY", False),
        ("01/yi", "http://127.0.0.1:8080/v1", "compatible", "_01_API_KEY", False),
    ],
)
def test_who_is_asked_how(model: str, base_url: str | None, dialect: str, key_env: str, needs_key: bool) -> None:
    found = endpoint_of(model, base_url)
    assert (found.name, found.base_url, found.dialect) == (model, base_url, dialect)
    assert (found.key_env, found.needs_key) == (key_env, needs_key)
    assert endpoint_of(model, base_url, "OTHER").key_env == "OTHER"


def test_addresses_are_brought_into_one_form() -> None:
    assert endpoint_of("own/x", "http://host:8000/v1/").base_url == "http://host:8000/v1"
    assert endpoint_of("anthropic/x", "https://host/v1/").base_url == "https://host"
    assert endpoint_of("own/x", "https://[::1]:8000/v1").base_url == "https://[::1]:8000/v1"


@pytest.mark.parametrize(
    ("model", "base_url", "word"),
    [
        ("own/x", None, "runner.baseUrl"),
        ("gpt-5", None, "provider/model"),
        ("openai/", None, "provider/model"),
        ("own/x", "host:8000", "https://host/v1"),
        ("own/x", "ftp://host", "https://host/v1"),
        ("own/x", "http://", "https://host/v1"),
        ("own/x", "http://[::1", "https://host/v1"),
    ],
)
def test_what_makes_no_sense_says_what_to_write(model: str, base_url: str | None, word: str) -> None:
    with pytest.raises(SkillInputError, match=word.replace(".", r"\.")):
        endpoint_of(model, base_url)


@pytest.mark.parametrize("address", ["https://me:sesame@host/v1", "https://sesame@host", "https://host/v1?key=sesame"])
def test_an_address_with_a_secret_is_refused_without_naming_it(address: str) -> None:
    with pytest.raises(SkillInputError) as caught:
        endpoint_of("own/x", address)
    assert "keyEnv" in caught.value.detail and "sesame" not in str(caught.value.problem())
