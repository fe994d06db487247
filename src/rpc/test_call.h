// LocalCall: a call without a wire, for tests of handlers.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <utility>

#include "gradwire/call.h"

namespace gradwire {

class LocalCall final : public IncomingCall {
 public:
  LocalCall(std::string function, Payload args) : function_(std::move(function)), args_(std::move(args)) {}

  const WorkerInfo& caller() const override { return caller_; }
  const std::string& function() const override { return function_; }
  Payload& args() override { return args_; }
  bool keeps_result() const override { return false; }
  bool cancelled() const override { return false; }
  void Reply(Payload value) override { answer_.set_value(std::move(value)); }
  void Fail(Failure failure) override { throw Error(std::move(failure)); }
  std::shared_ptr<void> Enter() override { return nullptr; }
  void Resume(UniqueFunction<void()> answer) override { answer(); }
  void Post(UniqueFunction<void()> answer) override { answer(); }

  Payload Answer() { return answer_.get_future().get(); }  // waits for it; once

 private:
  std::promise<Payload> answer_;
  const WorkerInfo caller_{"caller", 0};
  const std::string function_;
  Payload args_;
};

}  // namespace gradwire
