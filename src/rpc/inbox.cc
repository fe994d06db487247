#include "rpc/inbox.h"

#include "rpc/inbox_inl.h"

namespace gradwire::rpc {

template class BasicInbox<InboxRules, Task>;

}  // namespace gradwire::rpc
