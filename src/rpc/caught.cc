// What the exception that is being handled says of a failure.
#include <c10/util/Exception.h>
#include <cxxabi.h>

#include <cstdlib>
#include <exception>
#include <string>
#include <typeinfo>

#include "gradwire/future.h"

namespace gradwire::detail {
namespace {

std::string TypeName(const std::exception& error) {
  int status = 0;
  char* name = abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status);
  std::string result = name ? name : typeid(error).name();
  std::free(name);
  return result;
}

}  // namespace

Failure CaughtFailure() {
  try {
    throw;
  } catch (const Error& error) {
    return error.failure();
  } catch (const c10::Error& error) {
    return {.code = ErrorCode::kRemote, .text = error.what_without_backtrace(), .type_name = TypeName(error)};
  } catch (const std::exception& error) {
    return {.code = ErrorCode::kRemote, .text = error.what(), .type_name = TypeName(error)};
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return {.code = ErrorCode::kRemote, .text = "an exception that is no std::exception was thrown"};
  }
}

}  // namespace gradwire::detail
