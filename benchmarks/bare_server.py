"""The yardstick for `/health`: a FastAPI application that does nothing else, with the same server options."""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI

app = FastAPI(docs_url=None, redoc_url=None, telemetry={"tracing": False, "metrics": False, "logs": False})


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "healthy"}


if __name__ == "__main__":
    uvicorn.run(
        app,
        port=int(sys.argv[1]),
        http="httptools",
        loop="asyncio",
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
    )
