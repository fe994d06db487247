// What References does with headers that a right peer never sends. Right ones: tests/sim/references_test.cc.
#include "rref/references.h"

#include <gtest/gtest.h>

namespace gradwire::rref {
namespace {

TEST(ReferencesHeader, ACreationUnderAnUsedIdIsRefusedAndLeavesTheFirstAlone) {
  Functions functions;
  References references({.id = {0, 7}, .name = "owner"}, functions);
  const auto hooks = references.interceptor();
  const rpc::Peer user{.id = {1, 7}, .name = "user"};
  const wire::KeepAs ids{.rref = {user.id, 0}, .fork = {user.id, 1}};

  wire::Request first{.call_id = 1, .keep_as = ids};
  CallState first_state;
  rpc::ServedCall first_call{user, first, first_state};
  hooks->OnHeader(first_call);
  EXPECT_EQ(references.counts().entries, 1u);

  wire::Request second{.call_id = 2, .keep_as = ids};
  CallState second_state;
  rpc::ServedCall second_call{user, second, second_state};
  EXPECT_THROW(hooks->OnHeader(second_call), Error);
  EXPECT_FALSE(second.keep_as.has_value());  // whatever ends this call has no value to set

  Outcome made(Payload{.bytes = "value"});
  EXPECT_TRUE(hooks->OnKeep(first_call, made));
  EXPECT_EQ(references.counts().creating, 0u);
  EXPECT_EQ(references.counts().waiting, 0u);
}

}  // namespace
}  // namespace gradwire::rref
