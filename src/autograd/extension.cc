#include "autograd/extension.h"

#include <cstring>

#include "gradwire/error.h"

namespace gradwire::autograd {
namespace {

constexpr char kNoGrad = 1, kMessage = 2, kCut = 4;
constexpr size_t kShort = 1 + 8, kLong = kShort + 8 + 8 + 4;  // bytes

template <class T>
void Append(std::string& bytes, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) bytes.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
}

template <class T>
T Take(const std::string& bytes, size_t& at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= uint64_t{static_cast<unsigned char>(bytes[at++])} << (8 * i);
  return static_cast<T>(value);
}

}  // namespace

wire::Extension Encode(const ContextExtension& extension) {
  wire::Extension result{.tag = ContextExtension::kTag, .bytes = {}};
  const int flags =
      (extension.no_grad ? kNoGrad : 0) | (extension.message ? kMessage : 0) | (extension.cut.empty() ? 0 : kCut);
  result.bytes.push_back(static_cast<char>(flags));
  Append(result.bytes, extension.context);
  if (extension.message) {
    Append(result.bytes, extension.message->creator.packed());
    Append(result.bytes, extension.message->number);
    Append(result.bytes, extension.tensor_count);
  }
  for (const uint32_t number : extension.cut) Append(result.bytes, number);
  return result;
}

std::optional<ContextExtension> FindContextExtension(const std::vector<wire::Extension>& extensions) {
  for (const wire::Extension& extension : extensions) {
    if (extension.tag != ContextExtension::kTag) continue;
    const std::string& bytes = extension.bytes;
    const char flags = bytes.empty() ? '\0' : bytes[0];
    const bool has_message = (flags & kMessage) != 0;
    const bool is_cut = flags == kCut && bytes.size() > kShort && (bytes.size() - kShort) % sizeof(uint32_t) == 0;
    const bool is_recorded = bytes.size() == (has_message ? kLong : kShort) && (flags & ~(kNoGrad | kMessage)) == 0;
    if (!is_cut && !is_recorded) throw Error(ErrorCode::kInvalid, "the autograd field of a call has bad bytes");
    ContextExtension result{.no_grad = (flags & kNoGrad) != 0};
    size_t at = 1;
    result.context = Take<ContextId>(bytes, at);
    if (has_message) {
      const WorkerId creator = WorkerId::FromPacked(Take<uint64_t>(bytes, at));
      result.message = MessageId{creator, Take<uint64_t>(bytes, at)};
      result.tensor_count = Take<uint32_t>(bytes, at);
    }
    while (at < bytes.size()) result.cut.push_back(Take<uint32_t>(bytes, at));
    return result;
  }
  return std::nullopt;
}

}  // namespace gradwire::autograd
