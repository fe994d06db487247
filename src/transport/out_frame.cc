#include <algorithm>
#include <utility>

#include "transport/transport.h"

namespace gradwire::transport {

OutFrame MakeFrame(wire::FrameHeader header, std::string body) {
  OutFrame frame;
  header.body_size = static_cast<uint32_t>(body.size());
  wire::EncodeHeader(header, frame.head.data());
  frame.head_size = wire::FrameHeader::kSize;
  if (body.size() <= OutFrame::kHeadBytes - wire::FrameHeader::kSize) {
    std::copy(body.begin(), body.end(), frame.head.data() + frame.head_size);
    frame.head_size += header.body_size;
  } else {
    auto shared = std::make_shared<const std::string>(std::move(body));
    frame.body = *shared;
    frame.body_keep = std::move(shared);
  }
  return frame;
}

}  // namespace gradwire::transport
