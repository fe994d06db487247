// Task: a piece of work that runs once.
#pragma once

#include "gradwire/unique_function.h"

namespace gradwire {

using Task = UniqueFunction<void()>;

}  // namespace gradwire
