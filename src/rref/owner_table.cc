#include "rref/owner_table.h"

#include "rref/owner_table_inl.h"

namespace gradwire::rref {

template class BasicOwnerTable<OwnerRules>;

Failure Gone(RRefId rref) {
  return {.code = ErrorCode::kInvalid,
          .text = "The value of RRef " + ToString(rref) +
                  " is no longer on its owner: the last reference to it was dropped before this use arrived."};
}

Failure NeverMade(RRefId rref, const Failure& loss) {
  return {.code = ErrorCode::kDisconnected,
          .text = "The value of RRef " + ToString(rref) +
                  " was never made: the call that was to make it was lost with its sender (" + loss.text + ")",
          .worker = loss.worker};
}

}  // namespace gradwire::rref
