#include "rpc/test_pair.h"

#include <ATen/ops/full.h>

#include <algorithm>

namespace gradwire::rpc {
namespace {

const Peer kNear{.id = {0, 4}, .name = "near"};
const Peer kFar{.id = {1, 5}, .name = "far"};

}  // namespace

bool HandConnection::Deliver(const transport::OutFrame& frame) {
  if (closing_) return false;
  std::string bytes(frame.head.data(), frame.head_size);
  bytes += frame.body;
  const wire::FrameHeader header = wire::DecodeHeader(bytes.data());
  const std::string body = bytes.substr(wire::FrameHeader::kSize);
  try {
    if (header.bulk_size > 0) {
      if (std::byte* target = receiver_->BulkTarget(header, body)) {
        std::copy(frame.bulk.data, frame.bulk.data + frame.bulk.size, target);
      }
    }
    receiver_->OnFrame(header, body);
  } catch (const Error& error) {
    closing_ = aborted_ = true;
    out.clear();
    reason_ = error.failure();
  }
  return true;
}

bool HandConnection::TellEnd() {
  if (!closing_ || !receiver_) return false;
  const auto receiver = std::exchange(receiver_, nullptr);
  source_.reset();
  receiver->OnClosed(reason_);
  return true;
}

HandPair::HandPair()
    : near(std::make_shared<HandHost>(kNear, kFar, clock)), far(std::make_shared<HandHost>(kFar, kNear, clock)) {
  near->session = std::make_shared<Session>(near, kFar);
  far->session = std::make_shared<Session>(far, kNear);
}

HandPair::~HandPair() {
  for (const auto& line : lines) {
    line->first->Break();
    line->second->Break();
    line->first->TellEnd();
    line->second->TellEnd();
  }
  near->session.reset();
  far->session.reset();
}

HandPair::Line& HandPair::Connect(HandHost& from) {
  auto line = std::make_unique<Line>(std::make_shared<HandConnection>(), std::make_shared<HandConnection>());
  HandHost& to = &from == near.get() ? *far : *near;
  auto& mine = &from == near.get() ? line->first : line->second;
  auto& its = &from == near.get() ? line->second : line->first;
  lines.push_back(std::move(line));
  Link::Accept(to.shared_from_this(), its);
  Link::Dial(from.shared_from_this(), mine, from.session, from.dials.back(), [&from](bool refused, const Failure& why) {
    from.session->OnDialFailed(from.dials.back(), refused, why);
  });
  return *lines.back();
}

void HandPair::Run() {
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < lines.size(); ++i) {
      for (const bool to_far : {true, false}) {
        auto& from = to_far ? lines[i]->first : lines[i]->second;
        auto& to = to_far ? lines[i]->second : lines[i]->first;
        while (!from->out.empty()) {
          const transport::OutFrame frame = std::move(from->out.front());
          from->out.erase(from->out.begin());
          more |= to->Deliver(frame);
        }
        // An end that has closed is heard of on the other side.
        if (from->closing() && !to->closing()) to->Break();
        more |= from->TellEnd();
      }
    }
  }
}

void HandPair::Cut(Line& line, size_t to_far, size_t to_near) {
  const auto deliver = [](HandConnection& from, HandConnection& to, size_t count) {
    for (size_t i = 0; i < count && !from.out.empty(); ++i) {
      const transport::OutFrame frame = std::move(from.out.front());
      from.out.erase(from.out.begin());
      to.Deliver(frame);
    }
  };
  deliver(*line.first, *line.second, to_far);
  deliver(*line.second, *line.first, to_near);
  line.first->Break();
  line.second->Break();
  Run();
}

wire::EncodedMessage RequestMessage(const std::string& function, size_t floats) {
  wire::Request request;
  request.call_id = 1;
  request.function = function;
  if (floats > 0) request.args.tensors.push_back(at::full({static_cast<int64_t>(floats)}, 2.5));
  wire::EncodedMessage message = wire::Encode(request);
  wire::AppendTail(request, message);
  return message;
}

}  // namespace gradwire::rpc
