#include "base/fork_close.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gradwire {
namespace {

// A forked child that lives while this does.
class Child {
 public:
  Child() {
    EXPECT_EQ(pipe(life_), 0);
    EXPECT_EQ(pipe(ready_), 0);
    id_ = fork();
    char ignored = 0;
    if (id_ == 0) {
      close(life_[1]);
      if (write(ready_[1], "r", 1) == 1 && read(life_[0], &ignored, 1) == 0) _exit(0);
      _exit(1);
    }
    EXPECT_EQ(read(ready_[0], &ignored, 1), 1);
  }
  ~Child() {
    close(life_[1]);
    int status = -1;
    EXPECT_EQ(waitpid(id_, &status, 0), id_);
    EXPECT_EQ(status, 0);
    for (const int each : {life_[0], ready_[0], ready_[1]}) close(each);
  }

 private:
  int life_[2], ready_[2];
  pid_t id_ = -1;
};

bool IsAtItsEnd(int socket) {
  char ignored = 0;
  return recv(socket, &ignored, 1, MSG_DONTWAIT) == 0;
}

TEST(CloseInForkedChildren, ThePeerSeesTheParentsEnd) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  EXPECT_EQ(CloseInForkedChildren(ends[0]), ends[0]);
  const Child child;
  EXPECT_FALSE(IsAtItsEnd(ends[1])) << "the parent's own stays open";
  close(ends[0]);
  EXPECT_TRUE(IsAtItsEnd(ends[1]));
  close(ends[1]);
}

TEST(CloseInForkedChildren, NotAnotherThatHasItsNumber) {
  int ends[2], others[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, others), 0);
  CloseInForkedChildren(ends[0]);
  ASSERT_EQ(dup2(others[0], ends[0]), ends[0]);
  {
    const Child child;
    close(others[0]);
    close(ends[0]);
    EXPECT_FALSE(IsAtItsEnd(others[1])) << "the child still has it";
  }
  close(others[1]);
  close(ends[1]);
}

TEST(CloseInForkedChildren, LeavesAFailedOneAlone) { EXPECT_EQ(CloseInForkedChildren(-1), -1); }

}  // namespace
}  // namespace gradwire
