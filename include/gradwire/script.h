// TorchScript as callee: script functions and methods of script modules, which run on their worker without Python.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gradwire/export.h"
#include "gradwire/function.h"

namespace torch::jit {
struct CompilationUnit;
struct Function;
struct Module;
}  // namespace torch::jit

namespace gradwire {

// The name under which others call a script function, given its qualified name ("__torch__.model.score"): as any other
// name in rpc_sync, rpc_async and remote. Arguments that the call leaves out at the end get the script's defaults. What
// a script throws reaches the caller as Error(kRemote) with the script's text.
GRADWIRE_API std::string ScriptFunction(const std::string& qualified_name);
// The same for a script function that returns a Future[T]: the call is answered with its value, when it is there (C6).
GRADWIRE_API std::string AsyncScriptFunction(const std::string& qualified_name);

// Serves every script function that `find` knows by its qualified name; it returns nullptr for others, is asked once
// for each, on any thread, and what it returns must live as long as the table. At most once for a table.
using ScriptFinder = std::function<torch::jit::Function*(const std::string& qualified_name)>;
GRADWIRE_API void AddScriptFunctions(Functions& functions, ScriptFinder find);
// Those of one unit, which nobody compiles into any more.
GRADWIRE_API void AddScriptFunctions(Functions& functions, std::shared_ptr<torch::jit::CompilationUnit> unit);

// Serves the methods that `module` has now, under ScriptFunction("<name>.<method>"), on this very module. Throws
// Error(kInvalid) for a name that is taken, and serves none of them then.
GRADWIRE_API void AddScriptModule(Functions& functions, const std::string& name, const torch::jit::Module& module);

}  // namespace gradwire
