// One function per file that adds its part to the module gradwire._C.
#pragma once

#include "gil.h"

namespace gradwire {
class Worker;
}

namespace gradwire::python {

// Backward passes of the worker know the DistributedDataParallel modules of this process.
void KnowReducers(Worker& worker);

void BindAutograd(py::module_& module);
void BindContext(py::module_& module);
void BindFuture(py::module_& module);
void BindLaterAnswers(py::module_& module);
void BindOptions(py::module_& module);
void BindReference(py::module_& module);
void BindScript(py::module_& module);
void BindStore(py::module_& module);
void BindSurroundings(py::module_& module);
void BindWorker(py::module_& module);

}  // namespace gradwire::python
