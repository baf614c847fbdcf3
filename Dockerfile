FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/tpatcher
# Torch without CUDA; for a GPU: --build-arg PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cu130
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
RUN /opt/tpatcher/bin/pip install --no-cache-dir torch==2.13.0
COPY pyproject.toml README.md LICENSE ./
COPY tpatcher tpatcher
RUN /opt/tpatcher/bin/pip install --no-cache-dir ".[serve]"

FROM python:3.11-slim
RUN useradd --uid 10001 --create-home tpatcher && install -d -o tpatcher -g tpatcher /state
COPY --from=build /opt/tpatcher /opt/tpatcher
# Every option of `tpatcher serve` is a variable: TPATCHER_ and its name. The tokens are a file, of hashes.
# hadolint ignore=DL3064
ENV PATH=/opt/tpatcher/bin:$PATH \
    HF_HOME=/state/huggingface \
    XDG_CACHE_HOME=/state/cache \
    MALLOC_ARENA_MAX=2 \
    TPATCHER_MODEL=builtin-fc \
    TPATCHER_HOST=0.0.0.0 \
    TPATCHER_PORT=8000 \
    TPATCHER_STORE=/state/fixes.db \
    TPATCHER_TOKENS=/state/tokens.jsonl
USER 10001
WORKDIR /state
VOLUME /state
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f'http://127.0.0.1:{os.environ[\"TPATCHER_PORT\"]}/readyz', timeout=4)"]
ENTRYPOINT ["tpatcher"]
CMD ["serve"]
