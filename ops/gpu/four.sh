#!/usr/bin/env bash
# All runs that need four CUDA devices, within nine minutes, with one JSON as their result.
#
#   ops/gpu/four.sh --models FOLDER [--out four.json] [--peer NAME=COMMAND] [RUN ...]
#
# FOLDER has the folders llama8b and llama70b, each with config.json and a tokenizer, as python3 -m ops.gpu.four.model_folder
# writes them. Without RUN: all of them.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
# Multicast over NVLink is not there on every machine, and a process that asks for it in vain does not start
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
exec "${PYTHON:-python3}" -m ops.gpu.four "$@"
