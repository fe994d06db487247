// A read role that a waiting thread borrows (O1): the frames come on that thread, in order, and every end is told once.
#include <chrono>
#include <thread>
#include <vector>

#include "transport_contract/contract.h"

namespace gradwire::transport {
namespace {

using std::chrono::microseconds;

// A thread that reads a connection until it is told to stop.
class Reader {
 public:
  explicit Reader(std::shared_ptr<Connection> connection, Duration at_a_time = kPatience)
      : thread_([this, connection = std::move(connection), at_a_time] {
          while (!stop_.is_set()) connection->ReadUntil(stop_, at_a_time);
        }) {}
  ~Reader() { Stop(); }
  void Stop() {
    stop_.Set();
    if (thread_.joinable()) thread_.join();
  }
  std::thread::id id() const { return id_; }

 private:
  Event stop_;
  std::thread thread_;
  const std::thread::id id_ = thread_.get_id();
};

class BorrowedRead : public Contract {
 protected:
  // Which threads have called the near side.
  void OpenLine() {
    line_ = Connect();
    line_.at_near = std::make_shared<Recorder>([this](const wire::FrameHeader&, const std::string&) {
      std::lock_guard lock(mutex_);
      last_ = std::this_thread::get_id();
    });
    line_.Start();
  }
  std::thread::id ThreadOfNextFrame() {
    line_.SendFar(MakeRequest(sent_++, "x"));
    EXPECT_TRUE(line_.at_near->WaitForFrames(sent_));
    std::lock_guard lock(mutex_);
    return last_;
  }
  void WaitUntilItReads(const Reader& reader) {
    while (ThreadOfNextFrame() != reader.id()) {
    }
  }

  Line line_;
  uint64_t sent_ = 0;
  std::mutex mutex_;
  std::thread::id last_;
};

TEST_P(BorrowedRead, O1FramesComeOnTheWaitingThreadAndThenElsewhereAgain) {
  OpenLine();
  Reader reader(line_.near);
  WaitUntilItReads(reader);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ThreadOfNextFrame(), reader.id());
  reader.Stop();
  for (int i = 0; i < 100; ++i) EXPECT_NE(ThreadOfNextFrame(), reader.id());
  const auto frames = line_.at_near->TakeFrames();
  for (size_t n = 0; n < frames.size(); ++n) ASSERT_EQ(frames[n].number(), n);
}

TEST_P(BorrowedRead, ComesBackWhenTheTimeIsOver) {
  OpenLine();
  Event never;
  line_.near->ReadUntil(never, microseconds(1));
  ThreadOfNextFrame();
}

TEST_P(BorrowedRead, O1ManyBorrowersKeepTheOrder) {
  constexpr uint64_t kFrames = 4000;
  OpenLine();
  {
    std::vector<std::unique_ptr<Reader>> readers;
    for (int i = 0; i < 4; ++i) readers.push_back(std::make_unique<Reader>(line_.near, microseconds(20)));
    const auto bytes = MakeBytes(50'000, 3);
    for (uint64_t n = 0; n < kFrames; ++n) {
      line_.SendFar(n % 50 == 0 ? MakeBulk(n, bytes) : MakeRequest(n, std::string(n % 300, 'x')));
    }
    ASSERT_TRUE(line_.at_near->WaitForFrames(kFrames));
  }
  const auto frames = line_.at_near->TakeFrames();
  for (uint64_t n = 0; n < kFrames; ++n) ASSERT_EQ(frames[n].number(), n);
}

// Both directions full: the line tells its writer of room while somebody else reads.
TEST_P(BorrowedRead, WritingGoesOnMeanwhile) {
  OpenLine();
  Reader near_reader(line_.near), far_reader(line_.far);
  WaitUntilItReads(near_reader);
  const auto bytes = MakeBytes(size_t{8} << 20, 5);
  for (uint64_t n = 0; n < 4; ++n) {
    line_.SendNear(MakeBulk(n, bytes));
    line_.SendFar(MakeBulk(n, bytes));
  }
  ASSERT_TRUE(line_.at_far->WaitForFrames(4));
  ASSERT_TRUE(line_.at_near->WaitForFrames(sent_ + 4));
  for (const Received& frame : line_.at_far->TakeFrames()) EXPECT_EQ(frame.bulk, *bytes);
}

TEST_P(BorrowedRead, C1TheOtherSideCloses) {
  OpenLine();
  Reader reader(line_.near);
  WaitUntilItReads(reader);
  line_.far->Close({.code = ErrorCode::kDisconnected, .text = "enough"});
  ASSERT_TRUE(line_.at_near->WaitForClosed());
  EXPECT_EQ(line_.at_near->reason().code, ErrorCode::kDisconnected);
}

TEST_P(BorrowedRead, C1ThisSideCloses) {
  OpenLine();
  Reader reader(line_.near);
  WaitUntilItReads(reader);
  line_.near->Close({.code = ErrorCode::kCancelled, .text = "enough"});
  ASSERT_TRUE(line_.at_near->WaitForClosed());
  EXPECT_EQ(line_.at_near->reason().text, "enough");
}

TEST_P(BorrowedRead, C1TheTransportStops) {
  OpenLine();
  Reader reader(line_.near);
  WaitUntilItReads(reader);
  near_side_->Stop();
  EXPECT_TRUE(line_.at_near->is_closed());
}

TEST_P(BorrowedRead, BadBytesCloseTheConnection) {
  OpenLine();
  Reader reader(line_.near);
  WaitUntilItReads(reader);
  line_.SendFar(MakeRequest(sent_, std::string(Connection::kBodyBeforeHandshake + 1, 'x')));
  ASSERT_TRUE(line_.at_near->WaitForClosed());
  EXPECT_EQ(line_.at_near->reason().code, ErrorCode::kInvalid);
}

INSTANTIATE_TEST_SUITE_P(Tcp, BorrowedRead, testing::Values(std::pair{std::string("tcp"), &MakeTcpWiring}));

}  // namespace
}  // namespace gradwire::transport
