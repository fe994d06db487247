#include "worker/listen_host.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "gradwire/c10d_store.h"
#include "gradwire/error.h"

namespace gradwire {
namespace {

class StoreAt final : public Store {
 public:
  explicit StoreAt(std::string host) : host_(std::move(host)) {}
  std::string Host() const override { return host_; }
  void Set(const std::string&, const std::string&) override {}
  std::optional<std::string> Get(const std::string&, std::chrono::milliseconds) override { return std::nullopt; }
  int64_t Add(const std::string&, int64_t) override { return 0; }
  std::string CompareSet(const std::string&, const std::string&, const std::string&) override { return ""; }

 private:
  const std::string host_;
};

TEST(ListenHost, IsTheFirstThatIsGiven) {
  unsetenv("GRADWIRE_HOST");
  EXPECT_EQ(ListenHost("", StoreAt("")), "127.0.0.1");
  EXPECT_EQ(ListenHost("", StoreAt("127.0.0.1")), "127.0.0.1");
  EXPECT_EQ(ListenHost("", StoreAt("::1")), "::1");
  setenv("GRADWIRE_HOST", "127.0.0.3", 1);
  EXPECT_EQ(ListenHost("", StoreAt("127.0.0.1")), "127.0.0.3");
  EXPECT_EQ(ListenHost("127.0.0.2", StoreAt("127.0.0.1")), "127.0.0.2");
  unsetenv("GRADWIRE_HOST");
}

TEST(ListenHost, SaysWhatToDoWhenNoInterfaceLeadsToTheStore) {
  unsetenv("GRADWIRE_HOST");
  try {
    ListenHost("", StoreAt("no.such.host.invalid"));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(error.failure().text.find("no.such.host.invalid"), std::string::npos) << error.failure().text;
    EXPECT_NE(error.failure().text.find("GRADWIRE_HOST"), std::string::npos) << error.failure().text;
  }
}

TEST(ListenHost, OnlyAStoreOfOneMachineHasAHost) {
  const std::string path = testing::TempDir() + "listen_host_store";
  EXPECT_EQ(OpenStore("file://" + path, 0, 1, std::chrono::seconds(5))->Host(), "");
}

}  // namespace
}  // namespace gradwire
