#include "base/task_lines.h"

#include <gtest/gtest.h>

#include <string>

namespace gradwire {
namespace {

class TaskLinesTest : public ::testing::Test {
 protected:
  Task Says(char word) {
    return [this, word] { said_ += word; };
  }
  std::string AllHandlers() {
    while (lines_.handlers() > 0) lines_.TakeHandler()();
    return said_;
  }

  TaskLines lines_;
  std::string said_;
};

TEST_F(TaskLinesTest, PeersTakeTurns) {  // C4
  for (int i = 0; i < 4; ++i) lines_.AddHandler(1, Says('a'));
  for (int i = 0; i < 2; ++i) lines_.AddHandler(2, Says('b'));
  lines_.AddHandler(3, Says('c'));
  EXPECT_EQ(AllHandlers(), "abcabaa");
}

TEST_F(TaskLinesTest, APeerThatComesBackStandsBehindThoseThatWait) {
  lines_.AddHandler(1, Says('a'));
  lines_.AddHandler(2, Says('b'));
  lines_.TakeHandler()();
  lines_.AddHandler(1, Says('A'));
  EXPECT_EQ(AllHandlers(), "abA");
}

TEST_F(TaskLinesTest, HandlersOfOnePeerKeepTheirOrder) {
  lines_.AddHandler(1, Says('a'));
  lines_.AddHandler(2, Says('-'));
  lines_.AddHandler(1, Says('b'));
  lines_.AddHandler(1, Says('c'));
  EXPECT_EQ(AllHandlers(), "a-bc");
}

TEST_F(TaskLinesTest, TheLibrarysOwnStandApart) {
  lines_.AddHandler(1, Says('a'));
  lines_.Add(Says('x'));
  lines_.Add(Says('y'));
  EXPECT_EQ(lines_.own(), 2u);
  EXPECT_EQ(lines_.handlers(), 1u);
  lines_.TakeOwn()();
  lines_.TakeOwn()();
  EXPECT_EQ(AllHandlers(), "xya");
  EXPECT_TRUE(lines_.empty());
}

}  // namespace
}  // namespace gradwire
