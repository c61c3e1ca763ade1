# The job alone: no Java, no broker, no developer's tools. Secrets are mounted, never copied in.
FROM python:3.13-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/privstream
WORKDIR /src
# Before the sources, so that a change of code does not install every package anew.
COPY requirements/core.lock requirements/
RUN /opt/privstream/bin/pip install --require-hashes -r requirements/core.lock
COPY pyproject.toml LICENSE README.md ./
COPY examples/ examples/
COPY schemas/ schemas/
COPY engines/ engines/
COPY agents/ agents/
RUN /opt/privstream/bin/pip install --no-build-isolation --no-deps --no-index .

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /var/lib/privstream --create-home privstream \
    && install -d -o privstream -g privstream -m 0700 /var/lib/privstream/data
COPY --from=build /opt/privstream /opt/privstream
# State tables of a job without a data_dir lie in the volume, too. Threads that compute share one arena of malloc: of its
# own, each keeps what a step needed at its largest.
ENV PATH=/opt/privstream/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MALLOC_ARENA_MAX=1 \
    XDG_STATE_HOME=/var/lib/privstream/data
USER 10001
WORKDIR /var/lib/privstream
# As sensitive as the raw topics: it holds the engines' states.
VOLUME /var/lib/privstream/data
ENTRYPOINT ["privstream"]
CMD ["--help"]
