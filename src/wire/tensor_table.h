// The tensors of a message, as records and the storages that these name (docs/wire.md, "Tensors").
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/MaybeOwned.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "wire/byte_ranges.h"
#include "wire/call.h"
#include "wire/cursor.h"
#include "wire/tensor_record.h"

namespace gradwire::wire {

// Writes in two steps, so that the message's bytes are reserved at once. `tensors` must stay as they are until both are
// done. Not thread-safe.
class TensorTableWriter {
 public:
  // Looks at the tensors. Throws Error(kInvalid) for one that cannot travel; the text names its device or layout.
  TensorTableWriter(const std::vector<at::Tensor>& tensors, size_t inline_limit);

  // What Write() appends, in bytes.
  size_t byte_size() const { return byte_size_; }

  // Appends records, and the storages under the inline limit; adds the others to `bulk`, which keeps them alive.
  void Write(std::string& out, std::vector<BulkSource>& bulk) const;

 private:
  // A record, or a part of the sparse or quantized one before it.
  struct Node {
    c10::MaybeOwned<at::Tensor> tensor;
    TensorKind kind = TensorKind::kUndefined;
    uint8_t flags = 0;
    uint8_t sparse_dim = 0;
    bool has_range = false;
    uint32_t range = 0;  // index in ranges_
  };

  void Add(c10::MaybeOwned<at::Tensor> tensor);
  void AddSparse(const at::Tensor& tensor, Node node, c10::MaybeOwned<at::Tensor> owned);
  void AddPart(at::Tensor part);
  void AddRange(const at::Tensor& tensor, Node& node);
  void WriteStorages(std::string& out, std::vector<BulkSource>& bulk) const;
  void WriteRecord(const Node& node, std::string& out) const;

  const uint32_t count_;  // of tensors
  const size_t inline_limit_;
  c10::SmallVector<Node, 4> nodes_;  // in the order of writing
  c10::SmallVector<ByteRange, 4> ranges_;
  c10::SmallVector<const c10::Storage*, 4> storages_;  // of ranges_
  RangeGroups groups_;
  size_t byte_size_ = 0;
};

// Reads what Write() wrote. Storages that come later are appended to `targets`, with memory (`ready`) when they have no
// more than `at_once` bytes in all, and it can be had. Throws Error(kInvalid) for bad bytes and for more than
// `max_bulk` bytes of such storages. Sparse tensors are made without a look at their indices.
std::vector<at::Tensor> ReadTensorTable(Cursor& in, size_t max_bulk, std::vector<BulkTarget>& targets, bool& ready,
                                        size_t at_once = kMemoryAtOnce);

}  // namespace gradwire::wire
