#include "autograd/pass_table.h"

#include "autograd/pass_table_inl.h"

namespace gradwire::autograd {

bool IsLoss(const Failure& failure) {
  return failure.code == ErrorCode::kDisconnected || failure.code == ErrorCode::kUnreachable ||
         failure.code == ErrorCode::kUnknownWorker;
}

template class BasicPassTable<PassRules>;

}  // namespace gradwire::autograd
