# docker build -t nonic . && docker run --rm nonic ibv_devinfo
#
# The command and the libraries in a small Debian, with rdma-core's and perftest's programs to try them. No capability, no
# device and no option is needed to run it.
FROM rust:1-bookworm AS build
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends binutils && rm -rf /var/lib/apt/lists/*
WORKDIR /nonic
COPY . .
RUN cargo xtask install --prefix /installed

FROM debian:12-slim
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends ibverbs-utils perftest rdmacm-utils \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /installed /usr/local
USER nobody
ENTRYPOINT ["nonic", "run", "--"]
CMD ["ibv_devinfo"]
