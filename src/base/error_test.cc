// The names of the error codes, and what an Error carries (C5).
#include "gradwire/error.h"

#include <gtest/gtest.h>

namespace gradwire {
namespace {

TEST(Error, CodesHaveTheirNameOnTheWire) {
  EXPECT_EQ(ErrorCodeName(ErrorCode::kDisconnected), "Disconnected");
  EXPECT_EQ(ErrorCodeName(ErrorCode::kInternal), "Internal");
  EXPECT_EQ(ErrorCodeName(static_cast<ErrorCode>(200)), "Unknown");
}

TEST(Error, KeepsTheFailureAndSaysItsText) {
  const Error error(ErrorCode::kTimedOut, "The call of f on w took longer than 5 ms.");
  EXPECT_EQ(error.code(), ErrorCode::kTimedOut);
  EXPECT_STREQ(error.what(), "The call of f on w took longer than 5 ms.");
  EXPECT_EQ(error.failure().text, error.what());
}

}  // namespace
}  // namespace gradwire
