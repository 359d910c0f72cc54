#include "tools/serve/address.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace trimtab {
namespace {

TEST(ServerAddress, OfIPv6HasBracketsInAUrlAlone) {
  for (const char* host : {"127.0.0.1", "localhost", "::1", "fe80::2a"}) {
    const std::string url = UrlOf({.host = HostOf(host), .port = 8000});
    const auto address = AddressOf(url + "/");
    ASSERT_TRUE(address) << url;
    EXPECT_EQ(address->host, host);
    EXPECT_EQ(address->port, 8000);
  }
  EXPECT_EQ(UrlOf({.host = HostOf("[::1]"), .port = 80}), "http://[::1]:80");
  EXPECT_EQ(AddressOf("http://[::1]")->port, 80);
  EXPECT_EQ(AddressOf("http://localhost")->port, 80);
}

TEST(ServerAddress, IsNothingElse) {
  for (const char* host : {"", "[]"}) EXPECT_THROW(HostOf(host), UsageError) << host;
  for (const char* url :
       {"", "http://", "https://x:1", "x:1", "http://x:", "http://x:port", "http://x:0",
        "http://x:65536", "http://x:1x", "http://x/v1", "http://x:1/v1", "http://:1", "http://[]:1",
        "http://[::1", "http://[::1]1", "http://::1:1"}) {
    EXPECT_FALSE(AddressOf(url)) << url;
  }
}

}  // namespace
}  // namespace trimtab
