#include "base/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <string>

#include "gradwire/error.h"

namespace gradwire {

Digest HmacSha256(std::string_view key, std::initializer_list<std::string_view> parts) {
  // The parts are short, and HMAC() at once is what every version of libcrypto has.
  std::string text;
  for (const std::string_view part : parts) text += part;
  Digest digest{};
  unsigned int size = 0;
  const unsigned char* done =
      HMAC(EVP_sha256(), key.empty() ? "" : key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &size);
  if (done == nullptr || size != digest.size())
    throw Error(ErrorCode::kInternal, "libcrypto cannot compute HMAC-SHA256");
  return digest;
}

bool SameDigest(const Digest& a, const Digest& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

Digest RandomBytes() {
  Digest bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    throw Error(ErrorCode::kInternal, "the system has no random numbers for secrets");
  }
  return bytes;
}

}  // namespace gradwire
