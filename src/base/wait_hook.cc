#include "gradwire/wait_hook.h"

namespace gradwire {
namespace {
thread_local WaitHook::Hook current_hook = nullptr;
}

WaitHook::WaitHook(Hook hook) : outer_(current_hook) { current_hook = hook; }
WaitHook::~WaitHook() { current_hook = outer_; }
WaitHook::Hook WaitHook::current() { return current_hook; }

}  // namespace gradwire
