"""Torch's names for its RPC: each works on gradwire or says why it does not."""

import importlib
import pickle
import subprocess
import sys
import textwrap
import types

import pytest
import torch
from conftest import LIMIT_S

from gradwire import _default, _rref
from gradwire import rpc as gradwire_rpc
from gradwire.compat import _refused

# Torch's module -> what stands there after install(), by its name in gradwire.compat. The installed torch is asked, so
# nothing may be redirected in this process: the other tests of this file run in processes of their own.
MODULES = {
    "torch.distributed.rpc": "rpc",
    "torch._C._distributed_rpc": "rpc",
    "torch.distributed.autograd": "autograd",
    "torch._C._distributed_autograd": "autograd",
    "torch.distributed.nn.api.remote_module": "nn.remote_module",
    "torch.distributed.rpc.api": "rpc.api",
    "torch.distributed.rpc.backend_registry": "rpc.backend_registry",
    "torch.distributed.rpc.constants": "rpc.constants",
    "torch.distributed.rpc.functions": "rpc.functions",
    "torch.distributed.rpc.internal": "rpc.internal",
    "torch.distributed.rpc.options": "rpc.options",
    "torch.distributed.rpc.rref_proxy": "rpc.rref_proxy",
    "torch.distributed.rpc._utils": "rpc._groups",
    "torch.distributed.rpc.server_process_global_profiler": "rpc.server_process_global_profiler",
}
DYNAMIC = {("rpc", "BackendType"), ("rpc.api", "_ALL_WORKER_NAMES"), ("rpc.backend_registry", "BackendType")}


@pytest.fixture(autouse=True, scope="module")
def _this_file_alone():
    """Importing gradwire.compat.rpc changes of which classes this process makes its worker and its references."""
    worker_class = _default.worker_class
    yield
    _default.worker_class = worker_class
    _rref.set_made_class(_rref.RRef)


def names_of(module):
    return {name for name in vars(module) if not (name.startswith("__") and name.endswith("__"))}


@pytest.mark.parametrize("theirs", MODULES)
def test_every_name_of_the_installed_torch_is_there_or_in_the_table(theirs):
    ours = MODULES[theirs]
    module = importlib.import_module(f"gradwire.compat.{ours}")
    there = names_of(module) | {name for of, name in DYNAMIC if of == ours}
    reasons = _refused.REASONS.get(ours, {})
    assert names_of(importlib.import_module(theirs)) - there - reasons.keys() == set(), "neither there nor in the table"
    refused = {name for name, reason in reasons.items() if reason}
    assert there & refused == set(), "there and in the table of what is not"


def test_the_table_names_nothing_that_torch_does_not_have():
    for ours, reasons in _refused.REASONS.items():
        modules = [importlib.import_module(theirs) for theirs, name in MODULES.items() if name == ours]
        assert reasons.keys() - set().union(*map(names_of, modules)) == set(), ours
        own = {theirs for theirs in MODULES if theirs.startswith("torch")}
        for name in (name for name, reason in reasons.items() if not reason):
            value = getattr(modules[0], name)
            is_own = getattr(value, "__module__", None) in own and isinstance(value, (type, types.FunctionType))
            assert not is_own, f"{name} is no import of {modules[0].__name__}"


def test_every_use_of_a_refused_name_says_why():
    for ours, reasons in _refused.REASONS.items():
        module = importlib.import_module(f"gradwire.compat.{ours}")
        for name, reason in reasons.items():
            if not reason:
                continue
            refused = getattr(module, name)
            assert refused is getattr(module, name)
            assert repr(refused) == f"<gradwire has no {name}: {reason}>"
            with pytest.raises(gradwire_rpc.Error, match=f"gradwire has no {name}: "):
                refused(1)
    refused = importlib.import_module("gradwire.compat.rpc.api").AllGatherStates
    uses = [
        lambda: refused.gathered_objects,
        lambda: isinstance(1, refused),
        lambda: type("Derived", (object,), {}) and types.new_class("Derived", (refused,)),
        lambda: refused["key"],
        lambda: "key" in refused,
        lambda: list(refused),
        lambda: refused + 1,
        lambda: setattr(refused, "gathered_objects", {}),
        lambda: bool(refused),
        lambda: refused.__enter__(),
    ]
    for use in uses:
        with pytest.raises(gradwire_rpc.Error, match="gradwire has no AllGatherStates: "):
            use()
    with pytest.raises(AttributeError, match="has no 'copyreg': torch's file only imports it, from elsewhere"):
        importlib.import_module("gradwire.compat.rpc.internal").copyreg  # noqa: B018
    with pytest.raises(ImportError):
        exec("from gradwire.compat.rpc import timedelta")
    assert not hasattr(importlib.import_module("gradwire.compat.rpc"), "no_such_name")


def test_one_changed_import_is_enough():
    code = """
        from gradwire.rpc.functions import async_execution
        from gradwire import rpc
        assert rpc.functions.async_execution is async_execution
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=LIMIT_S)


def test_modules_of_torch_that_were_imported_before_follow(scripts):
    code, _, err = scripts.run("""
        import torch, torch.distributed._shard.sharded_tensor.api as shards, torch.nn.parallel.distributed as ddp
        import torch._jit_internal, torch.jit.annotations, torch.distributed.optim, torch.distributed.nn
        import gradwire
        gradwire.install()
        import torch.distributed.rpc as rpc
        import torch._C._distributed_rpc, torch.distributed.rpc._utils
        from torch.distributed.rpc._utils import logger, _update_group_membership
        assert rpc._utils.logger is logger and "gradwire" in repr(_update_group_membership)
        from torch._C._distributed_rpc import PyRRef
        from torch._C._distributed_autograd import backward
        assert shards.rpc is rpc and rpc.__name__ == "gradwire.compat.rpc"
        assert ddp.RRef is torch._jit_internal.RRef is torch.jit.annotations.RRef is rpc.RRef
        assert torch._C._distributed_rpc.PyRRef is torch._jit_internal.PyRRef is PyRRef
        assert backward is gradwire.autograd.backward
        assert torch.distributed.nn.RemoteModule is gradwire.nn.RemoteModule
        assert torch.distributed.optim.DistributedOptimizer is gradwire.optim.DistributedOptimizer
    """)
    assert code == 0, err


PREFIX = """
    import gradwire
    gradwire.install()
    import sys, pickle, threading
    import torch
    import torch.distributed.rpc as rpc
    import torch.multiprocessing as mp
    from torch.distributed.rpc import api, internal, rref_proxy

    class Box:
        def value(self, x):
            return x + 1

        @rpc.functions.async_execution
        def later(self, x):
            return rpc.rpc_async("w0", torch.add, args=(x, 1))

    def double(x, y=0):
        return 2 * x + y

    @rpc.functions.async_execution
    def double_later(x):
        return rpc.rpc_async("w0", double, args=(x,))

    def start(rank, world_size=2):
        rpc.init_rpc(f"w{rank}", rank=rank, world_size=world_size,
                     rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method="file://" + sys.argv[1]))

    def refuses(error, call, *args):
        try:
            call(*args)
        except error as raised:
            return " ".join([str(raised), *getattr(raised, "__notes__", ())])
        raise AssertionError(f"{call} did not raise {error}")

    def run_both(run):
        children = [mp.get_context("fork").Process(target=run, args=(rank,)) for rank in range(2)]
        for child in children:
            child.start()
        for child in children:
            child.join()
        sys.exit(max(abs(child.exitcode) for child in children))
"""


def check(scripts, tmp_path, text):
    code, out, err = scripts.run(textwrap.dedent(PREFIX) + textwrap.dedent(text), tmp_path / "store")
    assert code == 0, out + err


def test_what_libraries_ask_for(scripts, tmp_path):
    check(
        scripts,
        tmp_path,
        """
        @api._require_initialized
        def needs_rpc(x):
            "Documented."
            return x

        def run(rank):
            assert needs_rpc.__name__ == "needs_rpc" and needs_rpc.__doc__ == "Documented."
            assert "init_rpc" in refuses(RuntimeError, needs_rpc, 1)
            assert api._ALL_WORKER_NAMES == set()
            start(rank)
            assert needs_rpc(1) == 1
            assert api._ALL_WORKER_NAMES == {"w0", "w1"}
            assert api._all_gather(rank, set()) == api._all_gather(rank) == {"w0": 0, "w1": 1}
            assert api._all_gather(rank, {"w0", "w1"}) == {"w0": 0, "w1": 1}
            api._barrier(set())
            api._barrier(api._ALL_WORKER_NAMES)
            assert api._to_worker_info("w1") == api._to_worker_info(1) == rpc.get_worker_info("w1")
            assert api._to_worker_info(rpc.get_worker_info()).name == f"w{rank}"
            refuses(ValueError, api._to_worker_info, None)
            assert isinstance(api._get_current_rpc_agent(), rpc.RpcAgent)
            assert internal._get_current_rpc_agent() is rpc._get_current_rpc_agent()
            for made in (rpc.RRef(1), rpc.remote("w0", double, args=(1,)), gradwire.rpc.RRef(1)):
                assert isinstance(made, torch._C._distributed_rpc.PyRRef) and isinstance(made, rpc.RRef)
                assert torch._jit_internal.is_rref_instance(made)
            assert not isinstance(1, rpc.RRef) and not isinstance(torch.ones(1), torch._C._distributed_rpc.PyRRef)
            class Derived(rpc.RRef):
                pass
            assert not isinstance(rpc.RRef(1), Derived)
            rpc.shutdown()

        if __name__ == "__main__":
            run_both(run)
    """,
    )


def test_parts_of_calls(scripts, tmp_path):
    check(
        scripts,
        tmp_path,
        """
        def make(call):
            call("w0", double, args=(1,))

        def run(rank):
            start(rank)
            if rank == 0:
                for nested in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):  # calls are functions that can be sent
                    rpc.rpc_sync("w1", make, args=(nested,))
                assert rpc.rpc_sync("w1", rpc.rpc_sync, args=("w0", double, (2,))) == 4
                assert api._invoke_rpc("w1", double, rpc.api.RPCExecMode.SYNC, (2,), {"y": 1}).wait() == 5
                box = rpc.remote("w1", Box)
                assert api._rref_typeof_on_user(box) is api._rref_typeof_on_user(box, blocking=False).wait() is Box
                mine = rpc.RRef(Box())
                assert api._rref_typeof_on_owner(mine) is api._rref_typeof_on_owner(mine, False).wait() is Box
                for method in ("value", "later"):
                    assert getattr(rref_proxy.RRefProxy(box, rpc.rpc_sync), method)(1) == 2
                    assert rref_proxy._invoke_rpc(box, rpc.rpc_async, method, -1, 1).wait() == 2
                    assert rref_proxy._invoke_rpc(box, rpc.remote, method, -1, x=1).to_here() == 2
                assert rpc.rpc_sync("w1", rref_proxy._local_invoke, args=(box, "value", (1,), {})) == 2
                invoke_later = rref_proxy._local_invoke_async_execution
                assert rpc.rpc_sync("w1", invoke_later, args=(box, "later", (1,), {})) == 2
                refuses(ValueError, rref_proxy.RRefProxy, box, double)
            rpc.shutdown()

        if __name__ == "__main__":
            run_both(run)
    """,
    )


# Without the pickler the lambda could not be sent.
def test_a_pickler_of_the_program_pickles_its_calls(scripts, tmp_path):
    check(
        scripts,
        tmp_path,
        """
        class Plain:
            used = 0
            def serialize(self, call):
                self.used += 1
                func = double if call.func.__name__ == "<lambda>" else call.func
                return pickle.dumps(internal.PythonUDF(func, call.args, call.kwargs)), []

        class Derived(internal._InternalRPCPickler):
            def serialize(self, call):
                func = double if call.func.__name__ == "<lambda>" else call.func
                return super().serialize(internal.PythonUDF(func, call.args, call.kwargs))

        def owns(rref):
            return rref.is_owner()

        def run(rank):
            start(rank)
            if rank == 0:
                unsent = lambda x, y=0: None
                refuses(RuntimeError, rpc.rpc_sync, "w1", unsent, (1,))
                plain, derived = Plain(), Derived()
                for pickler in (plain, derived):
                    with api._use_rpc_pickler(pickler):
                        assert api._default_pickler is pickler
                        assert rpc.rpc_sync("w1", unsent, (1,), {"y": 1}) == 3
                        assert rpc.rpc_async("w1", unsent, (1,)).wait() == 2
                        assert rpc.remote("w1", unsent, (1,)).to_here() == 2
                        assert rpc.rpc_sync("w1", double_later, args=(2,)) == 4
                        assert rpc.rpc_sync("w1", torch.add, args=(torch.ones(2), 1)).sum() == 4
                        assert torch.equal(rpc.rpc_sync("w1", double, args=(torch.ones(2),)), 2 * torch.ones(2))
                assert plain.used == 5  # operators are not pickled
                box = rpc.remote("w1", Box)
                with api._use_rpc_pickler(derived):
                    assert rpc.rpc_sync("w1", owns, args=(box,))
                    assert box.rpc_sync().later(1) == box.rpc_async().value(1).wait() == 2
                    assert "raised by" in refuses(ValueError, rpc.rpc_sync, "w1", raise_it)
                    assert "'raise_it'" in refuses(TypeError, rpc.rpc_sync, "w1", raise_it, (threading.Lock(),))
                assert api._default_pickler is internal._internal_rpc_pickler
            rpc.shutdown()

        def raise_it():
            raise ValueError("raised by it")

        if __name__ == "__main__":
            run_both(run)
    """,
    )


def test_pickles_of_calls_round_trip():
    from gradwire.compat.rpc import internal

    value = [torch.ones(3), {"a": 1}]
    data, tensors = internal.serialize(value)
    assert len(tensors) == 1
    back = internal.deserialize(data, tensors)
    assert torch.equal(back[0], value[0])
    assert back[1] == value[1]
    assert internal.deserialize(pickle.dumps(value[1]), []) == value[1]


def test_the_end_in_parts(scripts, tmp_path):
    check(
        scripts,
        tmp_path,
        """
        def hold(rref):
            global held
            held = rref

        def run(rank):
            start(rank)
            if rank == 0:
                rref = rpc.RRef(1)
                rpc.rpc_sync("w1", hold, args=(rref,))
                assert "Leaking RRef" in refuses(RuntimeError, api._destroy_rref_context, False)
                api._destroy_rref_context(True)
            api._barrier(set())
            agent = api._get_current_rpc_agent()
            if rank == 0:
                rpc._reset_current_rpc_agent()
                assert not rpc._is_current_rpc_agent_set()
                agent.shutdown()
            else:
                api._finalize_shutdown()
                assert not rpc._is_current_rpc_agent_set()

        if __name__ == "__main__":
            run_both(run)
    """,
    )


def test_back_ends_made_of_the_handlers_of_tensorpipe(scripts, tmp_path):
    check(
        scripts,
        tmp_path,
        """
        from torch.distributed.rpc import backend_registry
        made = backend_registry.register_backend(
            "MINE",
            backend_registry._tensorpipe_construct_rpc_backend_options_handler,
            backend_registry._tensorpipe_init_backend_handler,
        )
        options = rpc.construct_rpc_backend_options(made, init_method="file://" + sys.argv[1], num_worker_threads=3)
        assert isinstance(options, rpc._TensorPipeRpcBackendOptionsBase) and options.num_worker_threads == 3
        assert rpc._DEFAULT_RPC_TIMEOUT_SEC == options.rpc_timeout and rpc._UNSET_RPC_TIMEOUT < 0
        rpc.init_rpc("w0", backend=made, rank=0, world_size=1, rpc_backend_options=options)
        assert rpc.rpc_sync("w0", double, args=(1,)) == 2
        rpc.shutdown()
    """,
    )


def test_sharded_tensors_with_references(scripts, tmp_path):
    check(
        scripts,
        tmp_path,
        """
        from torch.distributed import destroy_process_group, init_process_group
        from torch.distributed._shard import sharded_tensor
        from torch.distributed._shard.sharding_spec import ChunkShardingSpec

        def run(rank):
            init_process_group("gloo", init_method="file://" + sys.argv[1] + ".gloo", rank=rank, world_size=2)
            start(rank)
            spec = ChunkShardingSpec(dim=0, placements=["rank:0/cpu", "rank:1/cpu"])
            tensor = sharded_tensor.ones(spec, 4, 3, init_rrefs=True)
            api._barrier(set())  # it is filled after its references have been made
            (shards,) = tensor.remote_shards().values()
            assert isinstance(shards[0], rpc.RRef)
            assert torch.equal(shards[0].to_here().tensor, torch.ones(2, 3))
            rpc.shutdown()
            destroy_process_group()

        if __name__ == "__main__":
            run_both(run)
    """,
    )
