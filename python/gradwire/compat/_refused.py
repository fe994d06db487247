"""The names of torch's RPC that gradwire does not have, and why: each stands here or works.

A name with a reason is there all the same, so that programs which import it and never use it run; any use of it raises
an Error with the reason. A name without one is missing, as it is no name of the module but an import of torch's file.
tests/python/test_names.py compares this table with the installed torch.
"""

from collections.abc import Callable
from typing import Any, NoReturn

from gradwire.errors import Error

_CALLS = "calls are made by rpc_sync(), rpc_async() and remote()"
_GATHERING = "workers gather inside of the library: call _all_gather() or gradwire.all_gather()"
_PROFILING = "remote calls leave no events in profiles; torch.profiler sees the local work of each worker"
_GROUPS = "workers join and leave a group inside of the library: by init_rpc() and shutdown()"
_PICKLING = "calls have a pickle of their own: serialize() and deserialize(), or _use_rpc_pickler() for another"
_CHECKS = "init_rpc() checks its arguments and the device maps of all workers by itself"
_SCRIPTED = "scripted remote modules are not supported: make a RemoteModule without a module interface"
_COUNTERS = "gradwire keeps no such state: each rank counts its starts in the store"
_MADE_BY_LOOP = "a helper that torch makes its RRef with; the methods of RRef are there"

# (modules as they are called in gradwire.compat, names in each of them, reason)
_TABLE = [
    ("rpc", "_invoke_remote_builtin _invoke_remote_python_udf _invoke_remote_torchscript", _CALLS),
    ("rpc", "_invoke_rpc_builtin _invoke_rpc_python_udf _invoke_rpc_torchscript", _CALLS),
    ("rpc.api", "_invoke_remote_builtin _invoke_remote_python_udf _invoke_remote_torchscript", _CALLS),
    ("rpc.api", "_invoke_rpc_builtin _invoke_rpc_python_udf _invoke_rpc_torchscript", _CALLS),
    ("rpc rpc.api", "AllGatherStates", _GATHERING),
    ("rpc.api", "_all_gather_dict_lock _all_gather_sequence_id _all_gather_sequence_id_to_states", _GATHERING),
    ("rpc.api", "_gather_to_leader", _GATHERING),
    ("rpc rpc.api", "RemoteProfilerManager", _PROFILING),
    ("rpc rpc.server_process_global_profiler", "_server_process_global_profile", _PROFILING),
    ("rpc rpc.server_process_global_profiler", "_enable_server_process_global_profiler", _PROFILING),
    ("rpc rpc.server_process_global_profiler", "_disable_server_process_global_profiler", _PROFILING),
    ("rpc", "_set_profiler_node_id", _PROFILING),
    ("rpc.api", "_enable_rpc_profiler _get_should_profile", _PROFILING),
    ("rpc.internal", "_start_record_function", _PROFILING),
    ("rpc rpc.api", "_cleanup_python_rpc_handler", "shutdown() does all of it"),
    ("rpc", "_enable_jit_rref_pickle _disable_jit_rref_pickle", "references do not go into files of TorchScript"),
    ("rpc", "_init_counter _init_counter_lock", _COUNTERS),
    ("rpc", "_validate_rpc_args", _CHECKS),
    ("rpc rpc.api", "method_factory new_method", _MADE_BY_LOOP),
    ("rpc.api", "method method_name docstring", _MADE_BY_LOOP),
    ("rpc.api rpc.backend_registry rpc._groups", "_group_membership_management _update_group_membership", _GROUPS),
    ("rpc.backend_registry", "BackendValue", "use construct_rpc_backend_options() and init_backend()"),
    ("rpc.backend_registry", "_backend_type_doc _backend_type_repr", "they are parts of BackendType"),
    ("rpc.backend_registry", "_create_device_list _create_reverse_mapping _get_device_infos", _CHECKS),
    ("rpc.backend_registry", "_set_devices_and_reverse_device_map _validate_device_maps", _CHECKS),
    ("rpc.backend_registry", "_tensorpipe_exchange_and_check_all_device_maps _tensorpipe_validate_devices", _CHECKS),
    ("rpc.backend_registry", "_init_process_group", "no process group is needed; init_process_group() makes one"),
    ("rpc.constants", "DEFAULT_PROCESS_GROUP_TIMEOUT", "no process group is needed"),
    ("rpc.internal", "_pickler _unpickler _thread_local_tensor_tables", _PICKLING),
    ("rpc.internal", "_run_function _handle_exception", "exceptions travel as themselves: catch them at the call"),
    ("rpc.options", "_to_device _to_device_list _to_device_map", "TensorPipeRpcBackendOptions takes them as they are"),
    ("nn.remote_module", "_create_module_with_interface _instantiate_template", _SCRIPTED),
    ("nn.remote_module", "_NON_SCRIPTABLE_REMOTE_MODULE_MODULE", "forward() of a RemoteModule is not generated"),
    ("nn.remote_module", "_recursive_script_module_receiver _recursive_script_module_reducer", _PICKLING),
    ("nn.remote_module", "_remote_module_receiver _remote_module_reducer _SerializedRemoteModule", _PICKLING),
    ("nn.remote_module", "_REMOTE_MODULE_ATTRIBUTES_IGNORE_FOR_PICKLING", "all but _REMOTE_MODULE_PICKLED_ATTRIBUTES"),
    ("nn.remote_module", "_raise_not_supported", "what a RemoteModule does not support raises by itself"),
    # Imports of torch's files, and the variables of their type hints.
    ("rpc", "Generator Store dist dist_autograd logging numbers os threading timedelta torch urlparse warnings", ""),
    ("rpc.api", "Any Callable Future Generic GenericWithOneTypeVar ParamSpec T TYPE_CHECKING TypeVar _P _R", ""),
    ("rpc.api", "collections contextlib functools inspect logging threading torch", ""),
    ("rpc.backend_registry", "api cast collections dist enum rpc_constants torch", ""),
    ("rpc.constants", "timedelta", ""),
    ("rpc.functions", "functools", ""),
    ("rpc.internal", "Enum collections copyreg dist io pickle sys threading torch traceback", ""),
    ("rpc.options", "DeviceType rpc_contants torch", ""),
    ("rpc.rref_proxy", "Future functions partial torch", ""),
    ("rpc._groups", "cast contextmanager logging", ""),
    ("rpc.server_process_global_profiler", "itertools profile torch", ""),
    ("autograd", "Any TYPE_CHECKING annotations torch", ""),
    ("nn.remote_module", "Any Callable Iterator Mapping Module Parameter RemovableHandle Self T Tensor TypeVar", ""),
    ("nn.remote_module", "_grad_t _remote_device collections device dtype instantiator io nn rpc sys torch types", ""),
]

REASONS: dict[str, dict[str, str]] = {}  # module -> name -> reason
for _modules, _names, _reason in _TABLE:
    for _module in _modules.split():
        REASONS.setdefault(_module, {}).update(dict.fromkeys(_names.split(), _reason))


class Refused:
    """What stands where a name was: every use of it raises."""

    def __init__(self, name: str, reason: str) -> None:
        self.__dict__["text"] = f"gradwire has no {name}: {reason}"

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise Error(self.__dict__["text"])

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python itself looks for them, in imports and copies
            raise AttributeError(name)
        self._refuse()

    def __repr__(self) -> str:
        return f"<{self.__dict__['text']}>"

    __call__ = __mro_entries__ = __instancecheck__ = __subclasscheck__ = __setattr__ = __bool__ = _refuse
    __enter__ = __exit__ = __iter__ = __len__ = __contains__ = __getitem__ = __setitem__ = __delitem__ = _refuse
    __add__ = __radd__ = __iadd__ = _refuse


def getter_of(module: str) -> Callable[[str], Any]:
    """`__getattr__` of a module of gradwire.compat, which is asked for what the module does not define."""
    reasons = REASONS.get(module.removeprefix("gradwire.compat."), {})
    refused: dict[str, Refused] = {}

    def get(name: str) -> Any:
        reason = reasons.get(name)
        if reason is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if not reason:
            raise AttributeError(f"module {module!r} has no {name!r}: torch's file only imports it, from elsewhere")
        return refused.setdefault(name, Refused(name, reason))

    return get
