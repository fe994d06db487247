// What a forked child must not keep open: sockets of its parent. While one has a copy of them, the peers of a parent
// that was killed do not notice.
#pragma once

namespace gradwire {

// Sees to it that forked children close `socket`, whatever they do afterwards; returns it. Nothing is to be done when
// it is closed: another that gets its number is told from it. A negative one is returned as it is. Any thread.
int CloseInForkedChildren(int socket);

}  // namespace gradwire
