"""Sentence embeddings over HTTP, from the artifact of examples/embedding.py.

    autocompile tune examples/embedding.py --budget 3m --strategy quick --output rec-embedding/
    python examples/serve.py rec-embedding/ --port 8000
    curl -s localhost:8000/embed -H 'content-type: application/json' -d '{"sentences": ["Where is my parcel?"]}'
    curl -s localhost:8000/status

POST /embed takes sentences and returns unit-length vectors. GET /status reports how they are computed.
"""

import argparse
import json

import uvicorn
from embedding import PASSAGES, QUESTIONS, embed, model, tokenize
from fastapi import FastAPI, Response
from msgspec.json import encode
from pydantic import BaseModel, Field

import autocompile


class Request(BaseModel):
    """The sentences to embed."""

    sentences: list[str] = Field(min_length=1, max_length=64)


def service(module: autocompile.CompiledModule) -> FastAPI:
    """Return the service for a loaded module, which several threads may call at the same time."""
    app = FastAPI(title="sentence embeddings")

    @app.post("/embed")
    def embeddings(request: Request) -> dict[str, list[list[float]]]:
        return {"embeddings": embed(module, tokenize(request.sentences)).tolist()}

    @app.get("/status")
    def status() -> Response:
        return Response(encode(module.status), media_type="application/json")

    return app


def main() -> None:
    """Load the artifact, warm it up, and serve it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", help="a recommendation's directory")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--digest", help="serve this artifact only, as `autocompile show` prints its digest")
    arguments = parser.parse_args()
    module = autocompile.load(arguments.artifact, model, digest=arguments.digest)
    for sentences in (QUESTIONS, PASSAGES):
        embed(module, tokenize(sentences))
    print(json.dumps({"runtime": module.status.runtime, "configuration": module.status.label, "port": arguments.port}))
    uvicorn.run(service(module), host="127.0.0.1", port=arguments.port, log_level="warning")


if __name__ == "__main__":
    main()
