#include "rpc/outbox.h"

#include "rpc/outbox_inl.h"

namespace gradwire::rpc {

template class BasicOutbox<OutboxRules>;

}  // namespace gradwire::rpc
