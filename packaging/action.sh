#!/usr/bin/env bash
# What action.yml runs: installs nonic and tells the runner, by the files it names, what later steps need.
set -euo pipefail
checkout=$(cd "$(dirname "$0")/.." && pwd)
prefix=${RUNNER_TEMP:?this runs in a GitHub action}/nonic

if [ "${INPUT_VERSION:-source}" = source ]; then
    (cd "$checkout" && cargo xtask install --prefix "$prefix")
else
    name=nonic-$INPUT_VERSION-x86_64-linux
    releases=${NONIC_TEST_RELEASES:-https://github.com/nonic-rdma/nonic/releases/download}
    mkdir -p "$prefix"
    curl --fail --silent --show-error --location "$releases/v$INPUT_VERSION/$name.tar.gz" |
        tar -xz -C "$prefix" --strip-components=1
fi

echo "$prefix/bin" >>"$GITHUB_PATH"
echo "command=$prefix/bin/nonic" >>"$GITHUB_OUTPUT"
if [ "${INPUT_ENVIRONMENT:-false}" = true ]; then
    # Whatever `nonic run` sets for a program is set for the steps.
    for name in LD_LIBRARY_PATH LD_PRELOAD; do
        value=$("$prefix/bin/nonic" run -- printenv "$name" || true)
        [ -z "$value" ] || echo "$name=$value" >>"$GITHUB_ENV"
    done
fi

# Larger socket buffers are welcome where they can be had, which is on GitHub's own machines.
if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    sudo -n sysctl -q -w net.core.rmem_max=4194304 net.core.wmem_max=4194304 2>/dev/null || true
fi
"$prefix/bin/nonic" doctor
