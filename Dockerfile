# The service in a container: docker build -t slatewise . (or `make image`); how to run it: docs/how-to/containers.md
FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements.lock pyproject.toml README.md LICENSE ./
COPY src ./src
COPY experiments ./experiments
# The versions of requirements.lock; hashes are left out, because pip would then want one for slatewise, too.
RUN sed -n '/^[a-z]/s/ \\$//p' requirements.lock > constraints.txt
RUN python -m venv /opt/slatewise
RUN /opt/slatewise/bin/pip install --no-cache-dir --disable-pip-version-check --constraint constraints.txt '.[train,serve,postgres]'

FROM python:3.13-slim
COPY --from=build /opt/slatewise /opt/slatewise
RUN install -d -m 0755 -o 10001 -g 10001 /catalog /data
# Everything that is written goes to /data (and to /tmp, which is a tmpfs where the root is read-only).
ENV PATH=/opt/slatewise/bin:$PATH \
    HOME=/data \
    NUMBA_CACHE_DIR=/data/kernels \
    OPENBLAS_NUM_THREADS=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    SLATEWISE_CATALOG=/catalog \
    SLATEWISE_HOST=0.0.0.0 \
    SLATEWISE_KEYS=/data/keys.json \
    SLATEWISE_PORT=8000 \
    SLATEWISE_STORE=sqlite:////data/slates.db
WORKDIR /data
USER 10001:10001
VOLUME ["/catalog", "/data"]
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=5s --start-period=90s CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['SLATEWISE_PORT'] + '/health/ready', timeout=4)"]
ENTRYPOINT ["slatewise"]
CMD ["serve"]
