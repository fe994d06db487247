"""The worker with the methods that programs ask an agent for."""

from typing import Any

import torch

from gradwire import _C, _default, _device_maps

__all__ = ["TensorPipeAgent", "enable_gil_profiling"]

RpcAgent = _C.Worker

_gil_is_profiled = False


def enable_gil_profiling(flag: bool) -> None:
    """Whether debug infos say how long handlers have waited for the interpreter lock."""
    global _gil_is_profiled
    _gil_is_profiled = flag


class TensorPipeAgent(_C.Worker):
    """What init_rpc makes once gradwire.compat is imported."""

    def __init__(self, *, num_worker_threads: int, **options: Any) -> None:
        super().__init__(num_worker_threads=num_worker_threads, **options)
        self._num_worker_threads = num_worker_threads
        self.rounds = 0  # calls of join()

    @property
    def is_static_group(self) -> bool:
        """False when its workers come and go."""
        return not self.group_is_open()

    def get_worker_info(self, worker: str | int | _C.WorkerInfo | None = None) -> _C.WorkerInfo:
        return self.info() if worker is None else self.find(worker)

    def get_worker_infos(self) -> list[_C.WorkerInfo]:
        return self.infos()

    def get_debug_info(self) -> dict[str, str]:
        counts = self.counts()
        infos = {
            "agent.thread_pool_size": self._num_worker_threads,
            "agent.client_active_calls": counts["pending_calls"],
            "agent.server_active_calls": counts["serving_calls"],
        }
        if _gil_is_profiled:
            infos["agent.gil_average_wait_time_us"] = _C.average_lock_wait_us()
        return {key: str(value) for key, value in infos.items()}

    def join(self, shutdown: bool = False, timeout: float = 0.0) -> None:
        """Waits until all workers have come here and no work is left; then everybody's references are counted."""
        self.rounds += 1
        self.await_quiet(timeout)

    def shutdown(self, graceful: bool = False, timeout: float = 0.0) -> None:
        super().shutdown(graceful, timeout)

    def _get_device_map(self, worker: _C.WorkerInfo) -> dict[torch.device, torch.device]:
        return _device_maps.between(self.published(), self.info().name, worker.name)


_default.worker_class = TensorPipeAgent


def _get_current_rpc_agent() -> Any:
    return _default.required()
