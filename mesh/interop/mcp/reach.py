"""Whether the MCP server answers an agent, asked as its CLI would. The standard library's client: it needs no SDK."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

_TIMEOUT_S = 5.0
_CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "whoami", "arguments": {}}}


def silence(url: str, agent: str, secret: str | None) -> str | None:
    """Why the agent isn't served at that address, in words; None if it is."""
    if secret is None:
        return f"{agent} has no secret that can be read; run `mesh init`"
    parts = urlsplit(url)
    headers = {
        "Authorization": f"Bearer {secret}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-06-18",
    }
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
    try:
        connection.request("POST", parts.path, json.dumps(_CALL), headers)
        answer = connection.getresponse()
        content = json.loads(answer.read())
        served = content["result"]["structuredContent"]["agentId"] if answer.status == 200 else None
    except TimeoutError:
        return f"nothing came from {url} within {_TIMEOUT_S:g} s"
    except OSError:
        return f"nobody answers at {url}; start it: mesh mcp serve"
    except (http.client.HTTPException, ValueError, KeyError, TypeError):
        return f"what answers at {url} is not the mesh"
    finally:
        connection.close()
    if served != agent:
        return f"{url} answered {answer.status}: it serves another mesh" if served is None else f"it serves {served}"
    return None
