// HMAC-SHA256 and random bytes, for the handshake. The one place that uses OpenSSL's libcrypto.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace gradwire {

using Digest = std::array<uint8_t, 32>;

// HMAC-SHA256 (RFC 2104) of the parts, one after another. Throws Error(kInternal) when the system cannot compute it.
Digest HmacSha256(std::string_view key, std::initializer_list<std::string_view> parts);

// Takes the same time wherever the first difference is.
bool SameDigest(const Digest& a, const Digest& b);

// From the system's generator for secrets. Throws Error(kInternal) when it has none.
Digest RandomBytes();

}  // namespace gradwire
