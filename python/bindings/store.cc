#include "store.h"

#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <utility>

#include "gradwire/c10d_store.h"

namespace gradwire::python {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kSlice{100};

// Waits in slices and looks for signals between them.
class PatientStore final : public Store {
 public:
  explicit PatientStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  void Set(const std::string& key, const std::string& value) override { store_->Set(key, value); }
  int64_t Add(const std::string& key, int64_t amount) override { return store_->Add(key, amount); }
  std::string CompareSet(const std::string& key, const std::string& expected, const std::string& desired) override {
    return store_->CompareSet(key, expected, desired);
  }

  std::string Host() const override { return store_->Host(); }

  std::optional<std::string> Get(const std::string& key, milliseconds limit) override {
    const auto end = steady_clock::now() + limit;
    for (;;) {
      const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now());
      const bool last = left <= kSlice;
      auto value = store_->Get(key, std::clamp(left, milliseconds(1), kSlice));
      if (value || last) return value;
      if (const WaitHook::Hook hook = WaitHook::current()) hook();
    }
  }

 private:
  const std::shared_ptr<Store> store_;
};

}  // namespace

std::shared_ptr<Store> StoreOf(py::handle store) {
  // By pointer: the count is inside the store, whichever holder Python has.
  auto* const pointer = py::cast<c10d::Store*>(store);
  return std::make_shared<PatientStore>(WrapStore(c10::intrusive_ptr<c10d::Store>::reclaim_copy(pointer)));
}

}  // namespace gradwire::python
