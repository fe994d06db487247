// How long a message takes to and from bytes: `wire_bench` prints nanoseconds, the median of seven rounds.
#include <ATen/ops/ones.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string>

#include "gradwire/value.h"
#include "wire/call.h"
#include "wire/frame.h"

namespace gradwire::wire {
namespace {

template <class F>
double Nanoseconds(F f) {
  constexpr int kCalls = 20000;
  std::array<double, 7> rounds;
  for (double& round : rounds) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) f();
    round = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / kCalls;
  }
  std::nth_element(rounds.begin(), rounds.begin() + 3, rounds.end());
  return rounds[3];
}

void Measure(const char* name, const std::vector<at::Tensor>& tensors) {
  Request request{.call_id = 1, .function = "aten.add"};
  ValueWriter writer(request.args);
  writer.BeginTuple(tensors.size());
  for (const at::Tensor& tensor : tensors) writer.PutTensor(tensor);

  size_t total = 0;  // keeps the work from being left out
  const double encode = Nanoseconds([&] {
    EncodedMessage message = Encode(request);
    AppendTail(request, message);
    total += message.bytes.size();
  });
  EncodedMessage message = Encode(request);
  AppendTail(request, message);
  const std::string body = message.bytes.substr(FrameHeader::kSize);
  std::vector<BulkTarget> targets;
  bool ready = false;
  const double decode = Nanoseconds([&] {
    targets.clear();
    total += DecodeRequest(body, SIZE_MAX, targets, ready).args.tensors.size();
  });
  std::printf("%-28s %6zu bytes  encode %7.0f ns  decode %7.0f ns\n", name, total == 0 ? 0 : body.size(), encode,
              decode);
}

}  // namespace
}  // namespace gradwire::wire

int main() {
  using gradwire::wire::Measure;
  Measure("no tensor", {});
  Measure("1 tensor of 2 floats", {at::ones({2})});
  Measure("2 tensors of 2 floats", {at::ones({2}), at::ones({2})});
  Measure("8 tensors of 2 floats", std::vector<at::Tensor>(8, at::ones({2})));
  Measure("1 tensor of 1,000 floats", {at::ones({1000})});
  Measure("1 tensor of 1 MiB", {at::ones({1 << 18})});
}
