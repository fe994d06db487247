#include "worker/listen_host.h"

#include <cstdlib>

#include "gradwire/error.h"
#include "transport/tcp/tcp_address.h"

namespace gradwire {

std::string ListenHost(const std::string& chosen, const Store& store) {
  if (!chosen.empty()) return chosen;
  const char* const variable = std::getenv("GRADWIRE_HOST");
  if (variable && *variable != '\0') return variable;
  const std::string there = store.Host();
  if (there.empty()) return "127.0.0.1";
  try {
    return transport::InterfaceToward(there);
  } catch (const Error& error) {
    throw Error(error.code(), error.failure().text + "; GRADWIRE_HOST names the interface to listen on");
  }
}

}  // namespace gradwire
