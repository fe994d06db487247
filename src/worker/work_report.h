// What work is left when a shutdown has timed out, told to whoever waited for its end.
#pragma once

#include <string>
#include <vector>

#include "rpc/rpc.h"

namespace gradwire {

inline constexpr const char* kWorkFunction = "group.work";  // nothing -> (what runs there, what is awaited there)

// Answers a call of kWorkFunction.
void AnswerWork(const rpc::Rpc& rpc, IncomingCall& call);

// ": " and the work of this worker and of `peers`, as far as they answer within a second; empty when nothing is known.
// What runs somewhere is told there; what is awaited only when it runs nowhere.
std::string DescribeWork(rpc::Rpc& rpc, const std::vector<rpc::Peer>& peers);

}  // namespace gradwire
