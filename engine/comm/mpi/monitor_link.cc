#include "engine/comm/mpi/monitor_link.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace trimtab {

void MonitorFrame::SetText(const std::string& value) {
  text.fill('\0');
  std::copy_n(value.begin(), std::min(value.size(), text.size() - 1), text.begin());
}

std::string MonitorFrame::Text() const {
  return {text.data(), ::strnlen(text.data(), text.size())};
}

void MonitorLink::Send(const MonitorFrame& frame) {
  Flush();
  if (!out_.empty() && frame.kind == MonitorFrame::kBeat) return;
  out_.append(reinterpret_cast<const char*>(&frame), sizeof(frame));
  Flush();
}

void MonitorLink::Flush() {
  while (!out_.empty()) {
    const ssize_t sent =
        ::send(socket_.fd(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) return;  // later; a connection that is gone shows when it is read
    out_.erase(0, static_cast<size_t>(sent));
  }
}

std::optional<MonitorFrame> MonitorLink::Receive() {
  std::array<char, 4096> buffer;
  while (!closed_) {
    const ssize_t count = ::recv(socket_.fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count <= 0) {
      closed_ = true;
      break;
    }
    in_.append(buffer.data(), static_cast<size_t>(count));
  }
  if (in_.size() < sizeof(MonitorFrame)) return std::nullopt;
  MonitorFrame frame;
  std::memcpy(&frame, in_.data(), sizeof(frame));
  in_.erase(0, sizeof(frame));
  return frame;
}

}  // namespace trimtab
