# Longfold in one image: gateway, runner, Ray and vLLM. Targets: cpu, gpu.
#   docker build --target cpu -t longfold:cpu .
#   docker build --target gpu -t longfold:gpu .
# The installation is that of `make install` (deploy/setup.sh), without what only tests need.

FROM python:3.11-slim-bookworm AS base
# libgomp: torch. libnuma: vLLM's CPU build.
RUN apt-get update \
 && apt-get install -y --no-install-recommends libgomp1 libnuma1 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --create-home --home-dir /home/longfold longfold \
 && install -d -o longfold -g longfold /opt/longfold /var/lib/longfold /var/cache/longfold /models
USER longfold
WORKDIR /opt/longfold
COPY --chown=longfold:longfold . .
# Nothing is fetched behind the operator's back once the image runs: models come by `longfold models pull` or /models.
ENV LONGFOLD_STATE_DIR=/var/lib/longfold \
    LONGFOLD_CACHE_DIR=/var/cache/longfold \
    PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 \
    PATH=/opt/longfold/.venv/bin:$PATH
VOLUME ["/var/lib/longfold", "/var/cache/longfold"]
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=4 \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["longfold"]
CMD ["serve", "--host", "0.0.0.0"]

FROM base AS cpu
RUN DEV=0 DEVICE=cpu deploy/setup.sh

FROM base AS gpu
# Triton compiles its driver and kernels at the first start.
USER root
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
USER longfold
RUN DEV=0 DEVICE=gpu deploy/setup.sh
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
