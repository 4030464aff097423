"""The library's model for an endpoint."""

from __future__ import annotations

import os

import httpx2
from pydantic_ai.models import Model

from mesh.runners.model.endpoint import ADDRESS_VARIABLES, Endpoint, endpoint_of

#: Clients insist on a key; servers of one's own ask for none.
NO_KEY = "none"


def settled(endpoint: Endpoint) -> Endpoint:
    """The endpoint, with the address of the SDK's own variable where the registry names none and one is set."""
    variable = ADDRESS_VARIABLES.get(endpoint.provider, "")
    address = None if endpoint.base_url else os.environ.get(variable)
    return endpoint_of(endpoint.name, address, endpoint.key_env) if address else endpoint


def model_at(endpoint: Endpoint, key: str, http_client: httpx2.AsyncClient | None = None) -> Model:
    """The model that is asked there. Only the provider that is needed is imported: each costs a second."""
    key = key or NO_KEY
    if endpoint.dialect == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        anthropic = AnthropicProvider(api_key=key, base_url=endpoint.base_url, http_client=http_client)
        return AnthropicModel(endpoint.model, provider=anthropic)
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    if endpoint.dialect == "compatible":
        assert endpoint.base_url is not None
        compatible = OpenAICompatibleProvider(
            endpoint.provider, base_url=endpoint.base_url, api_key=key, http_client=http_client
        )
        return OpenAIChatModel(endpoint.model, provider=compatible)
    openai = OpenAIProvider(api_key=key, base_url=endpoint.base_url, http_client=http_client)
    if endpoint.dialect == "chat":
        return OpenAIChatModel(endpoint.model, provider=openai)
    return OpenAIResponsesModel(endpoint.model, provider=openai)
