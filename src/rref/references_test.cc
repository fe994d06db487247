// What References does with headers that a right peer never sends. Right ones: tests/sim/references_test.cc.
#include "rref/references.h"

#include <gtest/gtest.h>

#include <functional>
#include <tuple>

#include "gradwire/rref.h"

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

TEST(RRefOfNothing, IsAnErrorThatSaysSoAtEachUse) {
  const RRef<int64_t> nothing;
  const std::function<void()> uses[] = {
      [&] { nothing.to_here(); },  [&] { nothing.local_value(); },        [&] { nothing.owner(); },
      [&] { nothing.is_owner(); }, [&] { nothing.confirmed_by_owner(); }, [&] { EncodeValue(std::tuple(nothing)); },
  };
  for (const auto& use : uses) {
    try {
      use();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalid);
      EXPECT_STREQ(error.what(), "an RRef that refers to nothing");
    }
  }
  EXPECT_EQ(nothing.handle(), nullptr);
}

}  // namespace
}  // namespace gradwire::rref
