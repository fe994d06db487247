// HMAC-SHA256 as RFC 4231 has it, the comparison, and that random bytes are.
#include "base/hmac.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace gradwire {
namespace {

std::string Hex(const Digest& digest) {
  std::string hex;
  for (const uint8_t byte : digest) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

// Test cases 1 to 4, 6 and 7 of RFC 4231; case 5 is about a truncated output.
TEST(Hmac, IsThatOfRfc4231) {
  EXPECT_EQ(Hex(HmacSha256(std::string(20, '\x0b'), {"Hi There"})),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(Hex(HmacSha256("Jefe", {"what do ya want for nothing?"})),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(Hex(HmacSha256(std::string(20, '\xaa'), {std::string(50, '\xdd')})),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  std::string key;
  for (char byte = 1; byte <= 25; ++byte) key += byte;
  EXPECT_EQ(Hex(HmacSha256(key, {std::string(50, '\xcd')})),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  EXPECT_EQ(Hex(HmacSha256(std::string(131, '\xaa'), {"Test Using Larger Than Block-Size Key - Hash Key First"})),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(Hex(HmacSha256(std::string(131, '\xaa'),
                           {"This is a test using a larger than block-size key and a larger than block-size data. The "
                            "key needs to be hashed before being used by the HMAC algorithm."})),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(Hmac, PartsAreOneText) {
  EXPECT_EQ(HmacSha256("Jefe", {"what do ", "", "ya want for nothing?"}),
            HmacSha256("Jefe", {"what do ya want for nothing?"}));
}

TEST(Hmac, AnEmptyKeyIsAKey) {
  EXPECT_EQ(Hex(HmacSha256({}, {})), "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
  EXPECT_EQ(HmacSha256({}, {"x"}), HmacSha256("", {"x"}));
  EXPECT_NE(HmacSha256({}, {"x"}), HmacSha256("x", {"x"}));
}

TEST(Hmac, DigestsThatDifferAnywhereAreNotTheSame) {
  const Digest digest = HmacSha256("key", {"text"});
  EXPECT_TRUE(SameDigest(digest, HmacSha256("key", {"text"})));
  for (size_t at = 0; at < digest.size(); ++at) {
    Digest other = digest;
    other[at] ^= 1;
    EXPECT_FALSE(SameDigest(digest, other)) << "byte " << at;
  }
}

TEST(Hmac, RandomBytesDoNotRepeat) {
  std::set<Digest> drawn;
  for (int i = 0; i < 1000; ++i) drawn.insert(RandomBytes());
  EXPECT_EQ(drawn.size(), 1000u);
}

}  // namespace
}  // namespace gradwire
