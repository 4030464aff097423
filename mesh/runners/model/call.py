"""`python -P -m mesh.runners.model.call`: asks a model once and prints what came of it as one JSON line.

The prompt is standard input; the arguments hold nothing secret. The key comes from the environment alone, and is in
nothing that is printed or kept. Exit status: 0 with a result, 1 with a problem, 2 for bad use; the line tells more.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from mesh.errors import MeshError
from mesh.runners.model.endpoint import Endpoint, endpoint_of
from mesh.runners.model.reply import Reply, Trouble, scrubbed

#: Nothing is told to anybody but the provider, whatever else is installed.
SILENT = {
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
    "OTEL_SDK_DISABLED": "true",
    "LOGFIRE_SEND_TO_LOGFIRE": "false",
    "DO_NOT_TRACK": "1",
}
INSTALL = "pip install 'agent-mesh[model]'"


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mesh.runners.model.call", description="Ask a model once.")
    parser.add_argument("--model", required=True, help="provider/model")
    parser.add_argument("--base-url", help="address of the API; needed for all but openai and anthropic")
    parser.add_argument("--key-env", help="the variable that holds the key")
    parser.add_argument("--max-output-tokens", type=int, default=4096)
    parser.add_argument("--retries", type=int, default=2)
    parser.add_argument("--timeout-s", type=float, default=900)
    parser.add_argument("--session", help="id of the conversation")
    parser.add_argument("--session-file", help="where the conversation is kept")
    parser.add_argument("--resume", action="store_true", help="go on with the conversation in the file")
    parser.add_argument("--summarise", action="store_true", help="answer with a summary of the prompt")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    os.environ.update(SILENT)
    try:
        endpoint = endpoint_of(options.model, options.base_url, options.key_env)
    except MeshError as error:
        sys.stderr.write(f"{error.detail}\n")
        return 2
    # Taken out of the environment: nothing that is started or imported from here on finds it.
    key = os.environ.pop(endpoint.key_env, "").strip()
    prompt = sys.stdin.buffer.read().decode(errors="replace")
    try:
        reply = _reply(options, endpoint, key, prompt)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # the last resort: a traceback could show the key
        reply = _failed(f"{type(error).__name__}: {error}")
    sys.stdout.write(reply.line([key]) + "\n")
    sys.stdout.flush()
    return 1 if reply.problem else 0


def _failed(detail: str) -> Reply:
    return Reply(problem=Trouble(kind="failed", detail=detail))


def _reply(options: argparse.Namespace, endpoint: Endpoint, key: str, prompt: str) -> Reply:
    if not prompt.strip():
        return _failed("The prompt on standard input is empty.")
    try:
        from mesh.runners.model.asking import Question, ask
        from mesh.runners.model.dialects import model_at, settled
        from mesh.runners.model.history import History

        endpoint = settled(endpoint)
        if endpoint.needs_key and not key:
            detail = f"{endpoint.place} needs a key: set {endpoint.key_env} in the environment or in secrets.toml."
            return Reply(model=endpoint.name, problem=Trouble(kind="logged_out", detail=detail))
        model = model_at(endpoint, key)
    except ImportError as error:
        return _failed(f"A package of the model runner is missing ({error.name}): {INSTALL}.")
    question = Question(
        prompt=prompt,
        summarise=options.summarise,
        retries=options.retries,
        timeout_s=options.timeout_s,
        max_output_tokens=options.max_output_tokens,
    )
    if not options.session_file or options.summarise:
        return asyncio.run(ask(question, model, endpoint))[0]
    history = History(options.session_file, endpoint.name, key)
    before = history.load() if options.resume else []
    history.begin(before, prompt)
    reply, said = asyncio.run(ask(replace(question, history=before), model, endpoint))
    try:
        if said is None:
            history.take_back(before)
        else:
            history.save(said)
            reply.session = options.session
    except MeshError as error:  # the answer is worth more than the conversation
        sys.stderr.write(scrubbed(f"The conversation was not kept: {error.detail}", [key]) + "\n")
    return reply


if __name__ == "__main__":
    sys.exit(main())
