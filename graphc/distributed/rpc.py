"""torch.distributed.rpc: calls between processes."""

from __future__ import annotations

from .. import unsupported

_CURE = "run in one process: drop the wrapper, or choose it by torch.distributed.is_available()"

globals().update(unsupported.table("torch.distributed.rpc", _CURE, functions="""
    init_rpc shutdown rpc_sync rpc_async remote get_worker_info
""", kinds="""
    RRef WorkerInfo BackendType RpcBackendOptions TensorPipeRpcBackendOptions
"""))
