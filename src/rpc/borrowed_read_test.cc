#include "rpc/borrowed_read.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

namespace gradwire::rpc {
namespace {

TEST(BorrowedRead, ThreadLocalSettingsAreThoseOfANewThread) {
  const c10::InferenceMode inference;
  {
    const BorrowedRead borrowed;
    EXPECT_TRUE(BorrowedRead::on_this_thread());
    EXPECT_FALSE(c10::InferenceMode::is_enabled());
    EXPECT_TRUE(c10::GradMode::is_enabled());
  }
  EXPECT_FALSE(BorrowedRead::on_this_thread());
  EXPECT_TRUE(c10::InferenceMode::is_enabled());
  EXPECT_FALSE(c10::GradMode::is_enabled());
}

}  // namespace
}  // namespace gradwire::rpc
