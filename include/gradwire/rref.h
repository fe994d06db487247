// RRef<T>: a reference to a value that lives on its owner (docs/rref.md).
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "gradwire/call.h"
#include "gradwire/export.h"
#include "gradwire/future.h"
#include "gradwire/payload.h"
#include "gradwire/value.h"
#include "gradwire/worker_info.h"

namespace gradwire {

// The reference without its type. All copies in a process share one; the last one to go tells the owner.
class GRADWIRE_API RRefHandle : public Reference {
 public:
  virtual WorkerInfo owner() const = 0;
  virtual bool is_owner() const = 0;
  // True once the owner is known to have this reference in its table. Asks the owner when nobody knows yet; blocks at
  // most for the worker's default timeout. Not under a role.
  virtual bool confirmed_by_owner() = 0;

  // The value: a copy of it elsewhere, the very value on its owner (as LocalObject when it is one). The error of the
  // call that was to make it comes back at each use.
  virtual void Fetch(CallOptions options, Completion done) = 0;
  virtual Outcome FetchAndWait(CallOptions options) = 0;
  // Owner only, else Error(kInvalid): waits for a value that is still being made.
  virtual Outcome LocalValue(CallOptions options) = 0;

  // Throws the error that sending the reference in a message would meet.
  virtual void CheckSendable() const = 0;

  // "GloballyUniqueId(created_on=0, local_id=0)" of the reference and of this process's share of it.
  virtual std::string rref_id() const = 0;
  virtual std::string fork_id() const = 0;
  virtual const std::string& type_name() const = 0;

  // The creating call of `remote`, for programs that watch it: done when the owner has answered. Empty for others.
  virtual Future<void> creation() const = 0;
};

// A handle that is cheap to copy. Thread-safe, but for assignment.
template <class T>
class RRef {
 public:
  RRef() = default;  // refers to nothing: each use but assignment, to send it too, is Error(kInvalid)
  explicit RRef(std::shared_ptr<RRefHandle> handle) : handle_(std::move(handle)) {}

  // A copy of the value; on the owner the value itself (a tensor shares its storage). Blocks; throws Error.
  T to_here(CallOptions options = {}) const { return Decode(referred().FetchAndWait(options)); }
  // The same on the owner alone: Error(kInvalid) elsewhere.
  T local_value() const { return Decode(referred().LocalValue({})); }

  WorkerInfo owner() const { return referred().owner(); }
  bool is_owner() const { return referred().is_owner(); }
  bool confirmed_by_owner() const { return referred().confirmed_by_owner(); }
  const std::shared_ptr<RRefHandle>& handle() const { return handle_; }  // nullptr: of nothing

 private:
  friend struct Codec<RRef>;
  T Decode(Outcome value) const {
    return detail::DecodeValueOf<T>(value.value(), [&] { return "the value on worker '" + owner().name + "'"; });
  }
  RRefHandle& referred() const {
    if (!handle_) throw Error(ErrorCode::kInvalid, "an RRef that refers to nothing");
    return *handle_;
  }

  std::shared_ptr<RRefHandle> handle_;
};

namespace detail {
GRADWIRE_API std::shared_ptr<RRefHandle> ReadRRef(ValueReader& reader);  // Error(kInvalid) for another reference
}

template <class T>
struct Codec<RRef<T>> {
  static void Write(ValueWriter& w, const RRef<T>& v) {
    v.referred();
    w.PutReference(v.handle());
  }
  static RRef<T> Read(ValueReader& r) { return RRef<T>(detail::ReadRRef(r)); }
};

}  // namespace gradwire
